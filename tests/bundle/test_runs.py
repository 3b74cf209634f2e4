"""What is kept of a run beside its bundle, and how two of them are compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundle_samples import FACTS

from julia1.bundle import Bundle, Registry
from julia1.bundle.places import resolve
from julia1.bundle.runs import compare, content_hash, read_run

Make = Callable[..., Path]


class TestComparison:
    """Two runs side by side."""

    def test_parameters_data_and_metrics_are_held_together(self, registry: Registry, make: Make) -> None:
        other = {
            "hyper_parameters": {"epochs": 3, "learning_rate": 2e-5, "seed": 1, "windows": 2},
            "data_sha256": {"train": "d" * 64, "test": "b" * 64},
            "metrics": {"test": {"team": {"accuracy": 0.75, "ece": 0.1}, "urgent": {"f1": 1.0}}},
            "run": {"environment": {"python": "3.12", "packages": {"torch": "2.10"}, "cpu": "Abacus"}},
        }
        runs = [registry.run(registry.add(place).place) for place in (make(), make("other", **other))]
        found = compare(*runs).to_dict()
        assert found["parameters"] == {
            "learning_rate": {"first": 1.2345678e-5, "second": 2e-5},
            "windows": {"first": None, "second": 2},
        }
        assert found["environment"] == {"torch": {"first": "2.9", "second": "2.10"}}
        assert found["data"] == {"train": False, "test": True, "all": None}
        assert found["metrics"] == {
            "validation": {"team": {"accuracy": {"first": 0.75, "second": None}}},
            "test": {
                "team": {"accuracy": {"first": 0.5, "second": 0.75}, "ece": {"first": None, "second": 0.1}},
                "urgent": {"f1": {"first": None, "second": 1.0}},
            },
        }
        same = compare(runs[0], runs[0])
        assert not same.parameters
        assert set(same.data.values()) == {True}

    def test_figures_of_a_card_stand_in_for_metrics(self, registry: Registry, make: Make) -> None:
        figures = {
            "Accuracy": [{"set": "massive", "accuracy": 0.8}, {"set": "x"}],
            "Speed": {"p50": 3.2, "on": "a CPU"},
        }
        run = registry.run(registry.add(make(metrics=None, figures=figures)).place)
        assert run.metrics == {"Accuracy": {"massive": {"accuracy": 0.8}}, "Speed": {"": {"p50": 3.2}}}

    @pytest.mark.parametrize("odd", [None, 3, "text", [], {"a": 3}, {"a": {"b": 3}}, {"a": [3]}, {"a": [{}]}])
    def test_odd_provenance_is_left_out(self, registry: Registry, make: Make, odd: Any) -> None:
        made = make(**dict.fromkeys(FACTS, odd), figures=odd)
        run = registry.run(registry.add(made).place)
        assert not any(run.metrics.values())
        assert compare(run, run).parameters == {}
        assert (made / "card.md").is_file()


def test_content_does_not_depend_on_version_card_and_moment(make: Make) -> None:
    one, two, three = (
        Bundle.open(place).manifest for place in (make("a"), make("b", "2", run={"seconds": 1}), make("c", score=0.8))
    )
    assert content_hash(one) == content_hash(two) != content_hash(three)


def test_a_run_is_read_from_where_it_lies(registry: Registry, make: Make) -> None:
    stored = registry.add(make()).place
    assert read_run(resolve(registry.folder, "tickets@1").folder) == registry.run(stored)
