"""The guard: what fails, what is noise, and what cannot be known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from julia1 import InputError
from julia1.optimize.judging import Thresholds, figures, judge
from julia1.optimize.sensitivity import fewest_kept

CLASSES = ["a", "b", "c", "rare"]


def answers(rows: int, wrong: float, seed: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Logits of a model that errs in so many rows, and the right classes, of which one has 1 % of the rows."""
    rng = np.random.default_rng(seed)
    wanted = rng.choice(4, rows, p=[0.33, 0.33, 0.33, 0.01])
    given = np.where(rng.random(rows) < wrong, (wanted + 1) % 3, wanted)
    return np.eye(4, dtype=np.float32)[given] * 5, wanted


def changed(logits: npt.NDArray[np.float32], rows: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
    found = logits.copy()
    found[rows] = np.roll(found[rows], 1, axis=1)
    return found


def test_the_same_answers_lose_nothing() -> None:
    logits, wanted = answers(500, 0.1)
    found = judge(logits, logits, wanted, CLASSES, Thresholds())
    assert found.kept
    assert found.agreement == 1
    assert found.mcnemar == 1
    assert found.drops["accuracy"].value == 0


def test_a_real_loss_fails_and_says_how_much() -> None:
    logits, wanted = answers(2000, 0.05)
    worse = changed(logits, np.arange(0, 2000, 20))
    found = judge(logits, worse, wanted, CLASSES, Thresholds({"accuracy": 0.01}))
    assert not found.kept
    assert found.failures[0].startswith("accuracy fell by 0.0")
    assert found.mcnemar < 1e-6


def test_noise_does_not_fail() -> None:
    logits, wanted = answers(200, 0.1)
    # three lost, two won: half a point down, and no more than chance
    right = np.flatnonzero(logits.argmax(1) == wanted)
    wrong = np.flatnonzero(logits.argmax(1) != wanted)
    noisy = changed(logits, right[:3])
    noisy[wrong[:2]] = np.eye(4, dtype=np.float32)[wanted[wrong[:2]]]
    found = judge(logits, noisy, wanted, CLASSES, Thresholds({"accuracy": 0.004}))
    assert found.kept
    assert found.mcnemar == 1
    assert "more rows would tell" in found.notes[0]


def test_a_class_that_collapses_fails_although_the_mean_holds() -> None:
    logits, wanted = answers(3000, 0.02)
    rare = np.flatnonzero(wanted == 3)
    assert 15 < len(rare) < 60
    found = judge(logits, changed(logits, rare), wanted, CLASSES, Thresholds({"accuracy": 0.05}))
    assert len(found.failures) == 1
    assert found.failures[0].startswith("recall of 'rare' fell from 1.000 to 0.000")


def test_a_row_of_a_tiny_class_is_no_collapse() -> None:
    logits, wanted = answers(300, 0.0)
    few = np.flatnonzero(wanted == 3)[:1]
    assert judge(logits, changed(logits, few), wanted, CLASSES, Thresholds({"accuracy": 0.05})).kept


def test_agreement_is_guarded() -> None:
    logits, wanted = answers(1000, 0.1)
    found = judge(
        logits, changed(logits, np.arange(20)), wanted, CLASSES, Thresholds({"accuracy": 0.1}, agreement=0.99)
    )
    assert found.failures == ("98.00% of the answers are the same, 99.00% are asked for",)


def test_two_classes_have_an_area_under_the_curve() -> None:
    wanted = np.array([0, 0, 1, 1])
    assert figures(np.array([[2, 1], [1, 2], [0, 1], [0, 3]], np.float32), wanted)["auc"] == pytest.approx(0.875)
    with pytest.raises(InputError, match="auc is guarded, and these rows have none"):
        judge(*[np.eye(4, dtype=np.float32)] * 2, np.arange(4), CLASSES, Thresholds({"auc": 0.01}))


@pytest.mark.parametrize(
    "limits", [{"drops": {"f7": 0.1}}, {"drops": {"auc": 2}}, {"recall_drop": -1}, {"agreement": 9}]
)
def test_limits_are_checked(limits: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Thresholds(**limits)  # type: ignore[arg-type]


def test_no_rows_are_refused() -> None:
    with pytest.raises(InputError, match="no rows to judge on"):
        judge(
            np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32), np.zeros(0, np.int64), ["a", "b"], Thresholds()
        )


@pytest.mark.parametrize("needed", [0, 1, 2, 3, 7, 8, 9, 16])
def test_the_fewest_layers_are_found(needed: int) -> None:
    layers = [f"l{number}" for number in range(16)]
    asked = []

    def good(kept: object) -> bool:
        asked.append(kept)
        return len(kept) >= needed  # type: ignore[arg-type]

    assert fewest_kept(layers, good) == layers[:needed]
    assert len(asked) <= 11


def test_nothing_helps() -> None:
    assert fewest_kept(["a", "b", "c"], lambda kept: False) is None
