"""From a trained model to ONNX variants that share one weight file, with parity proven. Needs the ``export`` extra."""

from julia1.export.eight_bit import SharedWeights, rewrite
from julia1.export.onnx_graph import trace

__all__ = ["SharedWeights", "rewrite", "trace"]
