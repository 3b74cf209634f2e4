"""Fine-tuning of fixed heads: what is learned, targets, batches, and a run that was killed."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from julia1 import InputError  # noqa: E402
from julia1.bundle.heads import FeatureSpec, HeadSpec  # noqa: E402
from julia1.errors import TrainingError  # noqa: E402
from julia1.model import new_encoder  # noqa: E402
from julia1.model.fixed_model import FixedModel, pool  # noqa: E402
from julia1.text import TextTokenizer  # noqa: E402
from julia1.train.curves import read_log  # noqa: E402
from julia1.train.data.rows import DataRow, find_heads  # noqa: E402
from julia1.train.finetune import (  # noqa: E402
    LOG,
    LOGGED_STEPS,
    FineTuner,
    default_epochs,
    hidden_tokens,
    outputs_of,
)
from julia1.train.items import (  # noqa: E402
    Item,
    bucketed,
    collate,
    feature_spec,
    head_specs,
    make_items,
    target_of,
)
from julia1.train.losses import label_weights, relation_loss  # noqa: E402
from julia1.train.recipe import FineTuning  # noqa: E402

CONFIG = {
    "model_type": "bert",
    "vocab_size": 448,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.1,
}
SETTINGS = FineTuning(
    evaluate_every=1,
    epochs=6,
    batch_rows=8,
    learning_rate=2e-3,
    head_learning_rate=5e-3,
    threads=1,
    bf16=False,
    max_tokens=32,
)
FOOD, MUSIC = ["food good", "the hotel food", "pay food please"], ["music song", "the song team", "good music today"]


def rows_of(number: int) -> list[DataRow]:
    rows = []
    for i in range(number):
        is_food = i % 2 == 0
        text = (FOOD if is_food else MUSIC)[i // 2 % 3] + f" {i}"
        answers = {
            "topic": "food" if is_food else "music",
            "tags": ("food",) if is_food else ("music", "song"),
            "late": is_food,
            "stars": float(i % 2),
            "price": 10.0 + i,
        }
        rows.append(DataRow(f"f:{i}", text, answers, {"age": float(i % 2), "plan": "gold"}, "", "", False, {}))
    return rows


def new_model(specs: list[HeadSpec], features: FeatureSpec | None = None, **more: Any) -> FixedModel:
    torch.manual_seed(4)
    return FixedModel(new_encoder(CONFIG), specs, features, dropout=0.1, **more)


def accuracy(model: FixedModel, items: Any) -> dict[str, float]:
    found = outputs_of(model, items, 1, SETTINGS)
    return {
        name: float(np.mean([v.argmax() == i.targets[name].argmax() for v, i in zip(values, items, strict=True)]))
        for name, values in found.items()
        if name in ("topic", "late", "stars")
    }


@pytest.fixture
def task(tokenizer: TextTokenizer) -> tuple[list[HeadSpec], list[Item]]:
    rows = rows_of(48)
    specs = head_specs(find_heads(rows), rows)
    return specs, make_items(rows, specs, tokenizer, SETTINGS)


def test_questions_become_heads() -> None:
    rows = rows_of(48)
    specs = {spec.name: spec for spec in head_specs(find_heads(rows), rows)}
    assert {name: (spec.kind, spec.labels) for name, spec in specs.items()} == {
        "topic": ("choice", ("food", "music")),
        "tags": ("labels", ("food", "music", "song")),
        "late": ("yesno", ("no", "yes")),
        "stars": ("score", ("0", "1")),
        "price": ("value", ()),
    }
    assert specs["price"].centre == pytest.approx(33.5)


def test_every_head_learns_from_a_few_rows(task: tuple[list[HeadSpec], list[Item]], tmp_path: Path) -> None:
    specs, items = task
    tuner = FineTuner(new_model(specs), items[:36], items[36:], 1, SETTINGS, tmp_path, accuracy)
    best = tuner.run()
    assert best["figures"] == {"topic": 1.0, "late": 1.0, "stars": 1.0}
    found = outputs_of(tuner.model, items[36:], 1, SETTINGS)
    tags = np.stack([item.targets["tags"] for item in items[36:]])
    assert ((np.stack(found["tags"]) > 0) == (tags > 0)).mean() > 0.95


@pytest.mark.parametrize("kill_at", [3, 7])
def test_a_killed_run_goes_on_as_if_it_had_not_been(
    task: tuple[list[HeadSpec], list[Item]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: int
) -> None:
    specs, items = task
    whole = FineTuner(new_model(specs), items[:36], items[36:], 1, SETTINGS, tmp_path / "whole", accuracy)
    whole.run()
    broken = FineTuner(new_model(specs), items[:36], items[36:], 1, SETTINGS, tmp_path / "broken", accuracy)
    step = broken.optimizer.step

    def dying(*arguments: Any) -> None:
        if broken.step == kill_at:
            raise KeyboardInterrupt
        step(*arguments)
        broken.step += 1
        broken._save()  # as every 200 steps
        broken.step -= 1

    monkeypatch.setattr(broken.optimizer, "step", dying)
    with pytest.raises(KeyboardInterrupt):
        broken.run()
    again = FineTuner(new_model(specs), items[:36], items[36:], 1, SETTINGS, tmp_path / "broken", accuracy)
    saved = torch.load(tmp_path / "broken" / "training.pt", weights_only=True)
    per_epoch = len(list(bucketed(items[:36], SETTINGS, random.Random(0))))
    assert saved["step"] == kill_at
    saved["epoch"], saved["position"] = divmod(kill_at, per_epoch)
    torch.save(saved, tmp_path / "broken" / "training.pt")
    again.run()
    for (name, value), other in zip(whole.model.state_dict().items(), again.model.state_dict().values(), strict=True):
        assert torch.equal(value, other), name


def test_every_step_and_epoch_is_told(task: tuple[list[HeadSpec], list[Item]], tmp_path: Path) -> None:
    specs, items = task
    told: list[dict[str, Any]] = []
    tuner = FineTuner(new_model(specs), items[:36], items[36:], 1, SETTINGS, tmp_path, accuracy)
    tuner.run(told.append)
    steps = [record for record in told if record["kind"] == "step"]
    epochs = [record for record in told if record["kind"] == "epoch"]
    assert len(steps) + len(epochs) == len(told)
    assert [record["step"] for record in steps] == list(range(1, tuner.step + 1))
    for record in epochs:
        own = [step for step in steps if step["epoch"] == record["epoch"]]
        assert sum(step["rows"] for step in own) == 36
        mean = sum(step["loss"] * step["rows"] for step in own) / 36
        assert record["loss"] == pytest.approx(mean, abs=2e-4)
        assert record["figures"].keys() == {"topic", "late", "stars"}
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [one for one in logged if one["kind"] == "epoch"] == epochs
    assert [one["step"] for one in logged if one["kind"] == "step"] == [step["step"] for step in steps]


def test_a_long_run_logs_some_of_its_steps(task: tuple[list[HeadSpec], list[Item]], tmp_path: Path) -> None:
    specs, items = task
    tuner = FineTuner(new_model(specs), items[:36], items[36:], 1, SETTINGS, tmp_path, accuracy)
    tuner.total = 2000
    for tuner.step in range(1, 9):
        tuner._tell_step(8.0 * tuner.step, 4)
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(one["step"], one["loss"]) for one in logged] == [(4, 5.0), (8, 13.0)], "the mean since the last record"


def test_the_same_seed_gives_the_same_model(task: tuple[list[HeadSpec], list[Item]], tmp_path: Path) -> None:
    specs, items = task
    models = []
    for name in ("a", "b"):
        tuner = FineTuner(new_model(specs), items[:36], items[36:], 1, SETTINGS, tmp_path / name, accuracy)
        tuner.run()
        models.append(tuner.model.state_dict())
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_features_alone_can_decide(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    rows = [
        DataRow(f"f:{i}", "order", {"topic": "xy"[i % 2]}, {"age": float(i % 2), "plan": "gold"}, "", "", False, {})
        for i in range(40)
    ]
    specs, features = head_specs(find_heads(rows), rows), feature_spec(rows)
    items = make_items(rows, specs, tokenizer, SETTINGS, features)
    tuner = FineTuner(new_model(specs, features), items[:30], items[30:], 1, SETTINGS, tmp_path, accuracy)
    assert tuner.run()["figures"] == {"topic": 1.0}


def test_a_missing_feature_is_answered(tokenizer: TextTokenizer) -> None:
    rows = rows_of(12)
    features = feature_spec(rows)
    assert features.categories == {"plan": ("gold",)}
    model = new_model([HeadSpec("late", "yesno", ("no", "yes"))], features).eval()
    empty = DataRow("f:0", "order", {}, {"age": None, "plan": None}, "", "", False, {})
    (item,) = make_items([empty], [], tokenizer, SETTINGS, features)
    with torch.inference_mode():
        assert torch.isfinite(model(**collate([item], 1))["late"]).all()


def test_a_feature_of_two_types_is_refused() -> None:
    rows = [DataRow("f:0", "a", {}, {"age": value}, "", "", False, {}) for value in (3.0, "old")]
    with pytest.raises(InputError, match="'age' is a number at f:0 and a text at f:0"):
        feature_spec(rows)


def test_padding_changes_no_output(task: tuple[list[HeadSpec], list[Item]]) -> None:
    specs, items = task
    model = new_model(specs).eval()
    with torch.inference_mode():
        alone = model(**collate(items[:1], 1))
        longer = Item([*items[0].ids, *[7] * 20], {})
        among = model(**collate([items[0], longer], 1))
    for name in alone:
        assert torch.allclose(alone[name][0], among[name][0], atol=1e-5)


def test_pooling_leaves_padding_out() -> None:
    states = torch.tensor([[[1.0], [3.0], [99.0]]])
    found = pool(states, torch.tensor([[1, 1, 0]]))
    assert {name: value.item() for name, value in found.items()} == {"cls": 1.0, "mean": 2.0, "max": 3.0}


def test_batches_hold_every_row_once_within_their_budgets(task: tuple[list[HeadSpec], list[Item]]) -> None:
    _, items = task
    settings = FineTuning(batch_rows=7, batch_tokens=60)
    for rng in (None, random.Random(1)):
        batches = list(bucketed(items, settings, rng))
        assert sorted(i for batch in batches for i in batch) == list(range(len(items)))
        for batch in batches:
            longest = max(len(items[i].ids) for i in batch)
            assert len(batch) <= 7
            assert len(batch) == 1 or longest * len(batch) <= 60


def test_targets() -> None:
    choice = HeadSpec("c", "choice", ("a", "b", "c"))
    assert target_of(choice, "b", "f:1", 0).tolist() == [0, 1, 0]
    assert target_of(choice, {"a": 1.0, "c": 3.0}, "f:1", 0).tolist() == [0.25, 0, 0.75]
    assert target_of(HeadSpec("l", "labels", ("a", "b")), (), "f:1", 0).tolist() == [0, 0]
    assert target_of(HeadSpec("y", "yesno", ("no", "yes")), True, "f:1", 0).tolist() == [0, 1]
    assert target_of(HeadSpec("v", "value", centre=10.0, spread=5.0), 20.0, "f:1", 0).tolist() == [2]
    level = target_of(HeadSpec("s", "score", ("1", "2", "5")), 2.0, "f:1", 0.5)
    assert level.argmax() == 1
    assert level[0] == level[2] > 0
    with pytest.raises(InputError, match=r"f:9: the label 'z' of 'c' is not among those that are trained"):
        target_of(choice, "z", "f:9", 0)


def test_rare_labels_weigh_more() -> None:
    spec = HeadSpec("c", "choice", ("a", "b"))
    items = [Item([1], {"c": np.eye(2, dtype=np.float32)[int(i >= 9)]}) for i in range(10)]
    weights = label_weights(spec, items)
    assert weights is not None
    assert weights[1] / weights[0] == pytest.approx(3.0)


def test_a_loss_that_is_no_number_stops_with_what_to_do(
    task: tuple[list[HeadSpec], list[Item]], tmp_path: Path
) -> None:
    specs, items = task
    model = new_model(specs)
    with torch.no_grad():
        model.heads[0].out.bias.fill_(float("nan"))
    with pytest.raises(TrainingError, match="lower the learning rate"):
        FineTuner(model, items[:36], items[36:], 1, SETTINGS, tmp_path, accuracy).run()


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "cls+mean", "cls+mean+max"])
def test_poolings(task: tuple[list[HeadSpec], list[Item]], pooling: str) -> None:
    specs, items = task
    outputs = new_model(specs, pooling=pooling)(**collate(items[:3], 1))
    assert {name: tuple(value.shape) for name, value in outputs.items()} == {s.name: (3, s.outputs) for s in specs}


def test_an_unknown_pooling_is_refused() -> None:
    with pytest.raises(InputError, match="pooling is 'cls\\+avg': take each of cls, mean, max, pooler"):
        new_model([HeadSpec("late", "yesno", ("no", "yes"))], pooling="cls+avg")


def test_label_vectors_give_a_head_a_start() -> None:
    model = new_model([HeadSpec("c", "choice", ("a", "b"))], vectors={"c": torch.eye(2, 32)})
    head = model.heads[0]
    with torch.inference_mode():
        found = head.eval()(torch.zeros(1, head.hidden.in_features), torch.eye(2, 32)[:1])
    assert found[0, 0] > found[0, 1] + 10


def test_few_rows_are_trained_on_for_more_epochs() -> None:
    found = [default_epochs(steps) for steps in (1, 24, 150, 280, 700)]
    assert found == sorted(found, reverse=True)
    assert found[0] == found[1] > found[3] > 0


def test_validation_rows_are_not_read_before_so_many_steps(
    task: tuple[list[HeadSpec], list[Item]], tmp_path: Path
) -> None:
    specs, items = task
    looked: list[int] = []
    settings = replace(SETTINGS, epochs=7, evaluate_every=100, patience=1)

    def metric(model: FixedModel, rows: object) -> dict[str, float]:
        looked.append(1)
        return {"topic": 1.0 / len(looked)}

    steps = sum(1 for _ in bucketed(items, settings, random.Random(0)))
    FineTuner(new_model(specs), items, items[:4], 1, settings, tmp_path, metric).run()
    assert len(looked) == max(1, 7 // -(-100 // steps) + bool(7 % -(-100 // steps)))


def test_likeness_that_is_the_teachers_costs_nothing() -> None:
    vectors = torch.randn(5, 6)
    turned = torch.linalg.qr(torch.randn(8, 6))[0]
    items = [Item([1, 2], {}, teacher_vector=(turned @ vector).numpy()) for vector in vectors]
    assert float(relation_loss(vectors, items)) == pytest.approx(0.0, abs=1e-6)
    assert float(relation_loss(torch.randn(5, 6), items)) > 0.01
    assert float(relation_loss(vectors, [Item([1, 2], {})] * 5)) == 0.0


def test_a_share_of_the_tokens_is_hidden_and_no_special_one() -> None:
    torch.manual_seed(1)
    ids = torch.tensor([[0, *range(10, 200), 2, 1, 1]])
    hidden = hidden_tokens(ids, (0, 2, 1), 3, 0.2)
    changed = hidden != ids
    assert (hidden[changed] == 3).all()
    assert not changed[0, [0, -3, -2, -1]].any()
    assert 0.1 < changed.float().mean() < 0.3
    assert torch.equal(hidden_tokens(ids, (0, 2, 1), 3, 0.0), ids)


def test_the_log_of_a_run_taken_up_is_that_of_one_that_was_not_killed(
    task: tuple[list[HeadSpec], list[Item]], tmp_path: Path
) -> None:
    """Also where several steps make one line, and where the kill tore a line."""
    specs, items = task
    settings = replace(SETTINGS, epochs=3, patience=9)

    class Killed(Exception):
        pass

    def tuner(folder: str) -> FineTuner:
        found = FineTuner(new_model(specs), items[:36], items[36:], 1, settings, tmp_path / folder, accuracy)
        found.total = 7 * LOGGED_STEPS  # seven steps a line
        return found

    def kill(record: dict[str, Any]) -> None:
        if record["kind"] == "epoch" and record["epoch"] == 2:
            raise Killed

    tuner("whole").run()
    with pytest.raises(Killed):
        tuner("killed").run(kill)
    with (tmp_path / "killed" / LOG).open("a") as log:
        log.write('{"kind": "step", "st')
    tuner("killed").run()
    logs = [read_log(tmp_path / name) for name in ("whole", "killed")]
    assert len(logs[0][0]) > 1
    assert logs[0][0] == logs[1][0]
    assert [record["loss"] for record in logs[0][1]] == [record["loss"] for record in logs[1][1]]


def test_a_feature_without_any_value_is_refused() -> None:
    rows = [replace(row, features={"plan": None}) for row in rows_of(4)]
    with pytest.raises(InputError, match="no training row has a value for the feature 'plan'"):
        feature_spec(rows)
