"""Fewer bits for the weights and the inputs of linear layers, and for embedding tables."""
