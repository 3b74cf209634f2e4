"""From a PyTorch model to ONNX graphs that share one 8-bit weight file, parity proven. Needs the ``train`` extra."""

from julia1.export.eight_bit import SharedWeights, rewrite
from julia1.export.onnx_graph import trace
from julia1.export.parity import Parity, measure_parity, require_parity

__all__ = ["Parity", "SharedWeights", "measure_parity", "require_parity", "rewrite", "trace"]
