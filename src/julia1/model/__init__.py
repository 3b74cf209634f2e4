"""The PyTorch side of a decision model: encoder, heads, checkpoints. Needs the ``train`` extra."""
