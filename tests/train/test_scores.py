"""Figures in NumPy are scikit-learn's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1.train.scores import area_under_curve, f1, macro_f1, quadratic_kappa

metrics = pytest.importorskip("sklearn.metrics")

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)
SCORED = st.lists(st.tuples(st.booleans(), st.integers(-3, 3).map(float)), min_size=1, max_size=40)


@given(PAIRS)
def test_f1_and_macro_f1(pairs: list[tuple[int, int]]) -> None:
    right, found = (np.array(side) for side in zip(*pairs, strict=True))
    assert macro_f1(right, found) == pytest.approx(
        metrics.f1_score(right, found, average="macro", zero_division=0), abs=1e-12
    )
    expected = metrics.f1_score(right > 2, found > 2, zero_division=0)
    assert f1(right > 2, found > 2) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=3), min_size=1, max_size=20))
def test_f1_of_several_labels_is_micro(rows: list[list[tuple[bool, bool]]]) -> None:
    both = np.array(rows)
    right, found = both[..., 0], both[..., 1]
    expected = metrics.f1_score(right, found, average="micro", zero_division=0)
    assert f1(right, found) == pytest.approx(expected, abs=1e-12)


@given(PAIRS)
def test_quadratic_kappa(pairs: list[tuple[int, int]]) -> None:
    right, found = (np.array(side) for side in zip(*pairs, strict=True))
    if len(set(right)) == len(set(found)) == 1 and right[0] == found[0]:
        assert quadratic_kappa(right, found, 5) == 0  # scikit-learn has no number, and a warning
        return
    expected = metrics.cohen_kappa_score(right, found, weights="quadratic", labels=list(range(5)))
    assert quadratic_kappa(right, found, 5) == pytest.approx(expected, abs=1e-9)


@given(SCORED)
def test_area_under_the_curve(rows: list[tuple[bool, float]]) -> None:
    right, scores = (np.array(side) for side in zip(*rows, strict=True))
    one_sided = len(set(right.tolist())) == 1
    expected = 0.5 if one_sided else metrics.roc_auc_score(right, scores)
    assert area_under_curve(right, scores) == pytest.approx(expected, abs=1e-12)


def test_figures_are_plain_numbers() -> None:
    right, found = np.array([0, 1, 2, 2]), np.array([0, 2, 1, 2])
    figures = (
        f1(right > 1, found > 1),
        macro_f1(right, found),
        quadratic_kappa(right, found, 3),
        quadratic_kappa(right[:1], right[:1], 3),
        area_under_curve(right > 1, found.astype(float)),
        area_under_curve(right > 5, found.astype(float)),
    )
    assert {type(figure) for figure in figures} == {float}


def test_figures_need_neither_torch_nor_scikit_learn() -> None:
    source = Path(__file__).resolve().parents[2] / "src"
    code = (
        f"import sys; sys.path.insert(0, {str(source)!r})\n"
        "import julia1.train.metrics, julia1.train.served, julia1.train.data.rows\n"
        "print(*{'torch', 'sklearn', 'scipy', 'onnx', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
