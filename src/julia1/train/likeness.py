"""How alike texts look: shares of character 4-grams and words."""

from __future__ import annotations

from julia1.train.sources import LabelledSet


def nearest_labels(label: str, labelled: LabelledSet, number: int = 12) -> list[str]:
    """The other labels of a set that look most like one, by name and description."""
    own = text_grams(f"{label} {labelled.labels[label]}")

    def likeness(other: str) -> float:
        return overlap(own, text_grams(f"{other} {labelled.labels[other]}"))

    return sorted((x for x in labelled.labels if x != label), key=likeness, reverse=True)[:number]


def overlap(a: set[str], b: set[str]) -> float:
    """Jaccard likeness of two sets, not both empty."""
    return len(a & b) / len(a | b)


def text_grams(text: str) -> set[str]:
    """Character 4-grams and words, case ignored."""
    padded = f" {text.casefold()} "
    return {padded[i : i + 4] for i in range(len(padded) - 3)} | set(padded.split())
