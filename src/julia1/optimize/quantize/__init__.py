"""Fewer bits for the weights and the inputs of linear layers, and for embedding tables."""

from julia1.optimize.quantize.rows import quantize_rows
from julia1.optimize.quantize.static import quantize_static
from julia1.optimize.quantize.weights import quantize_weights

__all__ = ["quantize_rows", "quantize_static", "quantize_weights"]
