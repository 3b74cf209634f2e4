"""From labelled rows to a bundle that answers without PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("datasketch")

from tuning_samples import TOY  # noqa: E402

from julia1 import (  # noqa: E402
    ChoiceAnswer,
    Decider,
    InputError,
    LabelsAnswer,
    ScoreAnswer,
    TagsAnswer,
    ValueAnswer,
    YesNo,
    YesNoAnswer,
    load,
)
from julia1.answers import Reading  # noqa: E402
from julia1.bundle import Bundle, Calibration  # noqa: E402
from julia1.bundle.heads import HeadSpec  # noqa: E402
from julia1.cli.app import main  # noqa: E402
from julia1.runtime.cpu import probe  # noqa: E402
from julia1.runtime.fixed import ReadState, head_answer  # noqa: E402
from julia1.runtime.variants import missing_needs  # noqa: E402
from julia1.train.data.files import Columns  # noqa: E402
from julia1.train.data.rows import read_rows  # noqa: E402
from julia1.train.fit import fit  # noqa: E402
from julia1.train.metrics import head_figures  # noqa: E402
from julia1.train.package import Fitted  # noqa: E402
from julia1.train.parts import Parts, make_parts  # noqa: E402
from julia1.train.recipe import FineTuning  # noqa: E402
from julia1.train.start import start_from_bundle  # noqa: E402

WORDS = ["order", "late", "hotel", "city", "team", "good", "great", "please", "today", "want"]
SETTINGS = TOY


def labelled(number: int = 240, seed: int = 1) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    rows = []
    for i in range(number):
        food, upset = bool(random.integers(2)), int(random.integers(3))
        words = [str(w) for w in random.choice(WORDS, 4)]
        words.insert(int(random.integers(4)), "food" if food else "music")
        words.insert(int(random.integers(4)), ["calm", "upset", "furious"][upset])
        text = " ".join([*words, str(i)])
        rows.append(
            {
                "text": text,
                "answers": {
                    "where": [
                        {"start": text.index(word), "end": text.index(word) + len(word), "label": label}
                        for word, label in (("food", "what"), ("music", "what"), ("furious", "mood"))
                        if word in text
                    ],
                    "topic": "food" if food else "music",
                    "tags": [*(["food"] if food else []), *(["angry"] if upset else [])],
                    "late": "late" in words,
                    "upset": upset,
                    "price": 10.0 + 5 * food + 0.01 * i / number,
                },
                "age": float(random.integers(20, 60)),
            }
        )
    return rows


@pytest.fixture(scope="module")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("labelled") / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, labelled())), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def fitted(data_file: Path, tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    parts = make_parts(read_rows([data_file], Columns(features=("age",))), None, None, 1)
    return fit(
        parts,
        start_from_bundle(Bundle.open(tiny_bundle)),
        tmp_path_factory.mktemp("run"),
        SETTINGS,
        name="tickets",
        version="1",
    )


@pytest.fixture(scope="module", params=["fp32", "int8"])
def decider(request: pytest.FixtureRequest, fitted: Fitted) -> Decider:
    missing = missing_needs(fitted.bundle.variant(request.param), probe())
    if missing:
        pytest.skip(f"{request.param} cannot run here: {missing}")
    return load(fitted.bundle.folder, variant=request.param, threads=1)


def test_what_can_be_learned_is_learned(fitted: Fitted) -> None:
    assert fitted.parity.largest < 1e-4
    assert set(fitted.test) == {"topic", "tags", "late", "upset", "price", "where"}
    assert fitted.test["where"]["span_f1"] > 0.9
    assert fitted.test["topic"]["macro_f1"] > 0.95
    assert fitted.test["tags"]["micro_f1"] > 0.9
    assert fitted.test["late"]["f1"] > 0.8
    assert fitted.test["upset"]["quadratic_kappa"] > 0.9
    assert fitted.test["price"]["r2"] > 0.8


def test_every_head_answers_by_its_name(decider: Decider) -> None:
    answers = decider.decide("please food late furious today", features={"age": 30})
    assert isinstance(answers["topic"], ChoiceAnswer)
    assert answers["topic"].choice == "food"
    assert isinstance(answers["tags"], LabelsAnswer)
    assert set(answers["tags"].labels) == {"food", "angry"}
    assert isinstance(answers["late"], YesNoAnswer)
    assert answers["late"].yes
    assert isinstance(answers["upset"], ScoreAnswer)
    assert answers["upset"].level == 2
    assert isinstance(answers["price"], ValueAnswer)
    assert answers["price"].value == pytest.approx(15, abs=2.5)
    assert isinstance(answers["where"], TagsAnswer)
    assert [(span.label, span.text, span.start, span.end) for span in answers["where"].spans] == [
        ("what", "food", 7, 11),
        ("mood", "furious", 17, 24),
    ]
    assert json.dumps({name: answer.to_dict() for name, answer in answers.items()})


def test_a_batch_moves_no_answer(decider: Decider) -> None:
    texts = [row["text"] for row in labelled(40, seed=5)]
    features = [{"age": float(i)} if i % 2 else None for i in range(40)]
    alone = [decider.decide(text, features=own) for text, own in zip(texts, features, strict=True)]
    assert decider.decide_many(texts, features=features) == alone
    assert decider.decide_many(texts, features=features, batch_tokens=30) == alone


def test_both_variants_say_the_same(fitted: Fitted) -> None:
    texts = [row["text"] for row in labelled(60, seed=6)]
    if missing_needs(fitted.bundle.variant("int8"), probe()):
        pytest.skip("int8 cannot run here")
    first, second = (load(fitted.bundle.folder, variant=v, threads=1).decide_many(texts) for v in ("fp32", "int8"))
    same = [a["topic"].choice == b["topic"].choice for a, b in zip(first, second, strict=True)]  # type: ignore[union-attr]
    assert np.mean(same) > 0.95


def test_the_bundle_says_what_it_is(fitted: Fitted) -> None:
    again = Bundle.open(fitted.bundle.folder)
    assert again.manifest == fitted.bundle.manifest
    assert {check.status for check in again.verify()} == {"ok"}
    card = (fitted.bundle.folder / "card.md").read_text(encoding="utf-8")
    assert "Test rows, measured once" in card
    assert "tickets" in card


def test_a_second_call_takes_the_finished_run_up(fitted: Fitted, data_file: Path, tiny_bundle: Path) -> None:
    weights = (fitted.bundle.folder / "weights.safetensors").read_bytes()
    parts = make_parts(read_rows([data_file], Columns(features=("age",))), None, None, 1)
    again = fit(
        parts,
        start_from_bundle(Bundle.open(tiny_bundle)),
        fitted.bundle.folder.parent,
        SETTINGS,
        name="tickets",
        version="1",
    )
    assert (again.bundle.folder / "weights.safetensors").read_bytes() == weights


def test_a_trained_bundle_can_be_trained_further(fitted: Fitted, data_file: Path, tmp_path: Path) -> None:
    parts = make_parts(read_rows([data_file]), None, None, 1)
    settings = FineTuning(epochs=1, threads=1, bf16=False, max_tokens=32)
    again = fit(parts, start_from_bundle(fitted.bundle), tmp_path, settings, name="more", version="2")
    assert again.bundle.manifest.provenance["base_model"] == "tickets 1"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.decide("a text", {"q": YesNo("Late?")}), "answers fixed questions .*: leave the questions out"),
        (lambda d: d.decide("a text", features={"height": 3}), "no feature 'height'; it has: age"),
        (lambda d: d.decide("a text", features={"age": "old"}), "'age' is 'old': it must be a finite number"),
        (lambda d: d.decide("a text", features={"age": float("inf")}), "must be a finite number"),
        (lambda d: d.decide_many(["a", "b"], features=[None]), "2 states and 1 rows of features"),
        (lambda d: d.decide("a text", abstain_below=2), "a confidence lies between 0 and 1"),
    ],
)
def test_bad_calls_are_one_clear_error(decider: Decider, call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(decider)


def test_an_open_model_wants_questions(decider_fp32: Decider) -> None:
    with pytest.raises(InputError, match="answers open questions: give it at least one"):
        decider_fp32.decide("a text")


def test_a_trained_bundle_answers_without_pytorch(fitted: Fitted) -> None:
    code = (
        "import sys, julia1; d = julia1.load(sys.argv[1], threads=1); print(sorted(d.decide('food late calm')));"
        "assert not {'torch', 'transformers', 'sklearn'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(fitted.bundle.folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['late', 'price', 'tags', 'topic', 'upset', 'where']"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": f"a {i}", "label": "x"} for i in range(20)], "every row has 'x'"),
        (
            [
                *({"text": f"a {i} {'xy'[i % 2] * 5}", "label": "xy"[i % 2]} for i in range(40)),
                {"text": "b", "label": "z"},
            ],
            "one row only",
        ),
    ],
)
def test_rows_that_teach_nothing_are_refused_before_training(
    tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match=message):
        make_parts(read_rows([tmp_path / "rows.jsonl"]), None, None, 1)


def test_a_label_that_only_the_test_rows_have_is_named(data_file: Path, tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text(json.dumps({"text": "rain", "answers": {"topic": "weather"}}))
    with pytest.raises(InputError, match=r"test.jsonl:1: the label 'weather' stands in no training row"):
        make_parts(read_rows([data_file]), None, read_rows([tmp_path / "test.jsonl"]), 1)


def test_the_command_trains_and_the_bundle_decides(
    data_file: Path, tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    arguments = [
        "train",
        str(data_file),
        "-o",
        str(out),
        "--base",
        str(tiny_bundle),
        "--epochs",
        "2",
        "--max-tokens",
        "32",
    ]
    assert main([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert Path(printed["bundle"]).is_dir()
    assert set(printed["test"]) == {"topic", "tags", "late", "upset", "price", "where"}
    assert main(["decide", "food late", "--model", printed["bundle"], "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["answers"]) == set(printed["test"])


def few_parts(path: Path, features: tuple[str, ...] = ()) -> Parts:
    return make_parts(read_rows([path], Columns(features=features)), None, None, 1)


QUICK = FineTuning(epochs=1, threads=1, bf16=False, max_tokens=32)


def test_features_keep_their_order_whatever_they_are_called(tiny_bundle: Path, tmp_path: Path) -> None:
    """Two numbers and two categories, named against the alphabet, of very different ranges."""
    random = np.random.default_rng(3)
    rows = [
        {
            "text": f"order {i}",
            "label": "high" if (price := float(random.integers(1000, 9000))) > 5000 else "low",
            "price": price,
            "age": float(random.integers(1, 9)),
            "zone": "abcdefgh"[int(random.integers(8))],
            "brand": "xy"[int(random.integers(2))],
        }
        for i in range(160)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    names = ("price", "age", "zone", "brand")
    settings = FineTuning(
        epochs=14,
        patience=6,
        batch_rows=16,
        learning_rate=1e-3,
        head_learning_rate=1e-2,
        threads=1,
        bf16=False,
        max_tokens=32,
    )
    parts = few_parts(tmp_path / "rows.jsonl", names)
    fitted = fit(
        parts, start_from_bundle(Bundle.open(tiny_bundle)), tmp_path / "run", settings, name="prices", version="1"
    )
    assert list(fitted.bundle.manifest.features.numbers) == ["price", "age"]
    assert list(fitted.bundle.manifest.features.categories) == ["zone", "brand"]
    assert fitted.test["label"]["accuracy"] > 0.85
    decider = load(fitted.bundle.folder, variant="fp32", threads=1)
    for price, wanted in ((1500.0, "low"), (8500.0, "high")):
        features = {"brand": "x", "zone": "c", "age": 4.0, "price": price}
        answer = decider.decide("order", features=features)["label"]
        assert isinstance(answer, ChoiceAnswer)
        assert answer.choice == wanted


@pytest.mark.parametrize("change", [{"seed": 2}, {"epochs": 3}, {"learning_rate": 1e-3}])
def test_a_run_of_other_settings_is_not_taken_up(
    data_file: Path, tiny_bundle: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    fit(few_parts(data_file), start_from_bundle(Bundle.open(tiny_bundle)), tmp_path, QUICK, name="a", version="1")
    with pytest.raises(InputError, match="holds a run with other rows, heads, settings"):
        fit(
            few_parts(data_file),
            start_from_bundle(Bundle.open(tiny_bundle)),
            tmp_path,
            replace(QUICK, **change),
            name="a",
            version="1",
        )


def test_a_run_of_other_rows_is_not_taken_up(data_file: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    fit(few_parts(data_file), start_from_bundle(Bundle.open(tiny_bundle)), tmp_path, QUICK, name="a", version="1")
    parts = few_parts(data_file)
    other = Parts(parts.train[:-1], parts.validation, parts.test)
    with pytest.raises(InputError, match="holds a run with other rows"):
        fit(other, start_from_bundle(Bundle.open(tiny_bundle)), tmp_path, QUICK, name="a", version="1")


@pytest.mark.parametrize(
    ("settings", "name", "message"),
    [
        (replace(QUICK, max_tokens=2), "a", "max_tokens is 2: this encoder reads 3 to 128"),
        (replace(QUICK, max_tokens=600), "a", "max_tokens is 600: this encoder reads 3 to 128"),
        (QUICK, "my model", "no bundle can be called 'my model'"),
        (QUICK, "模型", "no bundle can be called"),
    ],
)
def test_what_could_not_be_written_is_refused_before_training(
    data_file: Path, tiny_bundle: Path, tmp_path: Path, settings: FineTuning, name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fit(
            few_parts(data_file),
            start_from_bundle(Bundle.open(tiny_bundle)),
            tmp_path / "run",
            settings,
            name=name,
            version="1",
        )
    assert not (tmp_path / "run").exists()


def test_training_rows_that_are_evaluated_on_are_left_out(data_file: Path, tmp_path: Path) -> None:
    rows = labelled()
    test = [{**rows[3], "text": rows[3]["text"].upper()}, {**rows[5], "augmented": True}, rows[9]]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, test)))
    parts = make_parts(read_rows([data_file]), None, read_rows([tmp_path / "test.jsonl"]), 1)
    assert len(parts.test) == 2, "no augmented row"
    assert parts.left_out >= 2
    known = {row.text for row in (*parts.train, *parts.validation)}
    assert not {rows[3]["text"], rows[9]["text"]} & known


def test_label_figures_are_those_of_the_rule_that_serves() -> None:
    head = HeadSpec("tags", "labels", ("a", "b"), thresholds=(0.3, 0.5))
    logits = np.array([[-1.5, 2.0], [-4.0, -2.0]], np.float32)
    targets = np.array([[1, 1], [0, 0]], np.float32)
    assert head_figures(head, logits, targets)["exact"] == 0.5
    warm = Calibration(2.0)
    assert head_figures(head, logits, targets, warm)["exact"] == 1.0
    answer = head_answer(head, logits[0], warm, ReadState("", Reading(1, 1), ()))
    assert isinstance(answer, LabelsAnswer)
    assert set(answer.labels) == {"a", "b"}
    assert answer.confidence == pytest.approx(1 / (1 + np.exp(0.75)))
