"""Training: the loss, micro-batches, the schedule, and runs that resume exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from julia1 import Choice, Julia1Error, YesNo  # noqa: E402
from julia1.model import OptionModel, new_encoder  # noqa: E402
from julia1.text import Limits, OptionsEncoding, Row, TextTokenizer  # noqa: E402
from julia1.train import Mix, Recipe, Trainer  # noqa: E402
from julia1.train.optimisation import linear_schedule, parameter_groups  # noqa: E402
from julia1.train.recipe import Training  # noqa: E402
from julia1.train.trainer import (  # noqa: E402
    TrainingRow,
    encode_examples,
    micro_batches,
    option_loss,
)
from julia1.train.views import Example  # noqa: E402

MakeRecipe = Callable[..., Recipe]


def training_row(
    length: int, sizes: list[int] | None = None, targets: list[float] | None = None, order: list[int] | None = None
) -> TrainingRow:
    """A row of a length, with questions of these numbers of options, its markers in any order."""
    tokens = np.zeros(length, np.int64)
    slots = [(q, o) for q, size in enumerate(sizes or [2]) for o in range(size)]
    order = order or list(range(len(slots)))
    markers = np.zeros(len(slots), np.int64)
    row = Row(tokens, tokens, tokens, tokens, markers, tuple(slots[i] for i in order), ((0,),) * len(slots))
    wanted = targets or [1.0] * len(slots)
    return TrainingRow(row, [wanted[i] for i in order])


@given(data=st.data(), smoothing=st.sampled_from([0.0, 0.02, 0.3]))
def test_the_loss_is_a_cross_entropy_a_question(data: st.DataObject, smoothing: float) -> None:
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    batch, expected, number = [], torch.zeros(()), 0
    sizes = data.draw(st.lists(st.lists(st.integers(2, 6), min_size=1, max_size=3), min_size=1, max_size=4))
    logits = torch.randn(len(sizes), max(map(sum, sizes)), generator=generator) * 5
    for i, of_row in enumerate(sizes):
        targets: list[float] = []
        start = 0
        for size in of_row:
            target = torch.rand(size, generator=generator)
            target = target / target.sum()
            scores = logits[i, start : start + size]
            expected = expected + torch.nn.functional.cross_entropy(
                scores[None], target[None], label_smoothing=smoothing
            )
            targets += target.tolist()
            start += size
            number += 1
        order = data.draw(st.permutations(range(start)))
        logits[i, :start] = logits[i, :start][list(order)]
        batch.append(training_row(10, of_row, targets, list(order)))
    loss, questions = option_loss(logits, batch, smoothing)
    assert questions == number
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-5)


def test_the_gradient_stays_within_its_question() -> None:
    logits = torch.randn(2, 5, requires_grad=True)
    batch = [training_row(4, [2, 3], [1.0, 0, 0, 1.0, 0]), training_row(4, [2], [0, 1.0])]
    option_loss(logits, batch, 0.0)[0].backward()
    assert logits.grad is not None
    assert torch.allclose(logits.grad[0, :2].sum(), torch.zeros(()), atol=1e-6)
    assert torch.allclose(logits.grad[0, 2:].sum(), torch.zeros(()), atol=1e-6)
    assert not logits.grad[1, 2:].any(), "padding has no gradient"


def test_the_loss_survives_huge_logits() -> None:
    loss, _ = option_loss(torch.tensor([[1e4, -1e4]]), [training_row(4, [2], [0.0, 1.0])], 0.02)
    assert torch.isfinite(loss)


@given(st.lists(st.integers(3, 300), max_size=40), st.integers(50, 2000))
def test_micro_batches_hold_every_row_once_within_the_budget(lengths: list[int], budget: int) -> None:
    rows = [training_row(length) for length in lengths]
    batches = list(micro_batches(rows, budget))
    assert sorted(id(item) for batch in batches for item in batch) == sorted(id(row) for row in rows)
    for batch in batches:
        longest = max(len(item.row) for item in batch)
        assert len(batch) == 1 or longest * len(batch) <= budget
        assert all(longest <= 1.5 * len(item.row) + 16 for item in batch)


def test_examples_become_one_row_each_or_none(tokenizer: TextTokenizer) -> None:
    encoding = OptionsEncoding(tokenizer, Limits(20, 12, 12, 60))
    two = (YesNo("Late?"), [0.25, 0.75])
    many = (Choice("Which?", [f"option {i}" for i in range(30)]), [1.0] + [0.0] * 29)
    other = (Choice("Which?", ["sport", "a", "music"]), [0.5, 0.2, 0.3])
    examples = [Example("late", [two]), Example("late", [many]), Example("food", [two, other, two])]
    rows = encode_examples(encoding, examples)
    assert [row.questions for row in rows] == [1, 3]
    assert [len(row.row.slots) for row in rows] == [2, 7]
    for row, example in zip(rows, (examples[0], examples[2]), strict=True):
        assert row.targets == [example.questions[question][1][option] for question, option in row.row.slots]
        for (question, option), marker in zip(row.row.slots, row.row.markers, strict=True):
            leaf = encoding.question_tokens("q", example.questions[question][0]).leaves[option]
            assert row.row.input_ids[marker : marker + len(leaf)].tolist() == leaf


def test_the_schedule_warms_up_then_falls_to_zero() -> None:
    training = Training(steps=100, warmup=0.1)
    rates = [linear_schedule(step, training.steps, training.warmup) for step in range(101)]
    assert rates[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert max(rates) == rates[10] == 1.0
    assert all(a > b for a, b in pairwise(rates[10:]))
    assert rates[100] == 0
    assert 0 < rates[99] < 0.02
    assert linear_schedule(0, steps=1, warmup=0.0) == 1.0


@pytest.fixture
def make_trainer(data: Path, tokenizer: TextTokenizer, make_recipe: MakeRecipe) -> Callable[..., Trainer]:
    def make(folder: Path, seed: int = 0, **training: Any) -> Trainer:
        recipe = make_recipe()
        recipe = replace(recipe, training=replace(recipe.training, **training))
        torch.manual_seed(seed)
        config = {
            "model_type": "bert",
            "vocab_size": tokenizer.vocabulary_size,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 24,
            "max_position_embeddings": 160,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        }
        encoding = OptionsEncoding(tokenizer, Limits(40, 60, 60, 400))
        return Trainer(OptionModel(new_encoder(config)), encoding, Mix(recipe, data), recipe, folder)

    return make


@pytest.fixture(autouse=True)
def torch_threads() -> Any:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def weights(trainer: Trainer) -> dict[str, Any]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").split("\n") if line]


class Killed(BaseException):
    """Stands for a kill signal."""


def test_a_killed_run_resumes_to_the_same_weights(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    whole = make_trainer(tmp_path / "whole")
    start = weights(whole)
    whole.run()

    def kill(record: dict[str, Any]) -> None:
        if record["step"] == 3:  # after the checkpoint of step 2
            raise Killed

    with pytest.raises(Killed):
        make_trainer(tmp_path / "killed").run(report=kill)
    resumed = make_trainer(tmp_path / "killed", seed=99)  # other random weights, which the checkpoint replaces
    resumed.run()

    assert resumed.step == whole.step == 4
    expected, found = weights(whole), weights(resumed)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert any(not torch.equal(expected[name], start[name]) for name in expected)
    assert [record["step"] for record in log(tmp_path / "killed")] == [1, 2, 3, 3, 4]
    losses = {record["step"]: record["loss"] for record in log(tmp_path / "killed")}
    assert losses == {record["step"]: record["loss"] for record in log(tmp_path / "whole")}


def test_a_finished_run_is_not_trained_again(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    first = make_trainer(tmp_path)
    first.run()
    again = make_trainer(tmp_path, seed=5)
    again.run()
    assert all(torch.equal(value, weights(again)[name]) for name, value in weights(first).items())
    assert len(log(tmp_path)) == 4


def test_the_development_check_runs_when_it_should(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    modes = []

    def evaluate(model: OptionModel) -> dict[str, float]:
        modes.append(model.training)
        return {"set": 0.5}

    reported: list[dict[str, Any]] = []
    make_trainer(tmp_path, steps=3).run(evaluate, reported.append)
    assert reported == log(tmp_path)
    assert [("development" in record) for record in reported] == [False, True, True]
    assert modes == [False, False]
    assert {"step", "loss", "tokens_per_second", "minutes_left"} <= set(reported[0])


def test_embeddings_of_pieces_stay_unless_asked_for(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    name = "encoder.embeddings.word_embeddings.weight"
    for train_embeddings in (False, True):
        trainer = make_trainer(tmp_path / str(train_embeddings), steps=1, train_embeddings=train_embeddings)
        before = weights(trainer)
        trainer.run()
        assert torch.equal(before[name], weights(trainer)[name]) is not train_embeddings


def test_rates_fall_with_depth_and_every_parameter_has_one(
    make_trainer: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make_trainer(tmp_path, learning_rate=1e-3, head_learning_rate=5e-3, layer_decay=0.5)
    model: Any = trainer.model
    groups = parameter_groups(model, trainer.recipe.training)
    rate = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    decay = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert len(rate) == sum(len(group["params"]) for group in groups) == len(trained)
    layers = model.encoder.encoder.layer
    assert rate[id(model.head.score.weight)] == 5e-3
    assert rate[id(layers[1].output.dense.weight)] == 1e-3
    assert rate[id(layers[0].output.dense.weight)] == 5e-4
    assert rate[id(model.encoder.embeddings.position_embeddings.weight)] == 2.5e-4
    assert decay[id(layers[0].output.dense.weight)] > 0
    assert decay[id(layers[0].output.dense.bias)] == 0
    assert decay[id(layers[0].output.LayerNorm.weight)] == 0


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_checkpoint(
    make_trainer: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = make_trainer(tmp_path, steps=2)
    trainer.run()
    kept = (tmp_path / "training.pt").read_bytes()
    broken = make_trainer(tmp_path, steps=4)
    broken._resume = lambda: setattr(broken, "step", 2)  # type: ignore[method-assign]
    with torch.no_grad():
        broken.model.head.score.weight.fill_(float("nan"))
    with pytest.raises(Julia1Error, match="the loss is nan at step 2: lower the learning rate"):
        broken.run()
    assert (tmp_path / "training.pt").read_bytes() == kept


def test_training_learns(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make_trainer(
        tmp_path, steps=30, states_per_step=16, learning_rate=3e-3, head_learning_rate=5e-3, warmup=0.1
    )
    trainer.run()
    losses = [record["loss"] for record in log(tmp_path)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.05


def test_an_example_with_an_option_over_its_budget_is_left_out(tokenizer: TextTokenizer) -> None:
    encoding = OptionsEncoding(tokenizer, Limits(20, 12, 12, 60))
    short = Example("red", [(Choice("Which?", ["a", "b"]), [1.0, 0.0])])
    long = Example("red", [(Choice("Which?", ["a", "b " * 400]), [1.0, 0.0])])
    assert len(encode_examples(encoding, [short, long])) == 1
