"""From a PyTorch model to ONNX graphs that share one low-bit weight file, parity proven. Needs the ``train`` extra."""

from julia1.export.encoder_graph import require_known
from julia1.export.fixed_graph import fixed_graph
from julia1.export.option_graph import option_graph
from julia1.export.parity import Parity, measure_parity, require_parity
from julia1.export.rounding import input_ranges
from julia1.export.shared_weights import SharedWeights

__all__ = [
    "Parity",
    "SharedWeights",
    "fixed_graph",
    "input_ranges",
    "measure_parity",
    "option_graph",
    "require_known",
    "require_parity",
]
