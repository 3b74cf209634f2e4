"""Hyper-parameters with which a model of toy size learns made-up rows in seconds."""

from __future__ import annotations

from julia1.train.recipe import FineTuning

TOY = FineTuning(
    epochs=16,
    evaluate_every=1,
    patience=6,
    batch_rows=16,
    learning_rate=3e-3,
    head_learning_rate=5e-3,
    threads=1,
    bf16=False,
    token_dropout=0.0,
    max_tokens=32,
)
