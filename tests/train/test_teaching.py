"""A student learns what its teacher says, of rows whose labels say something else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("datasketch")

from tuning_samples import TOY  # noqa: E402

from julia1 import InputError, load  # noqa: E402
from julia1.bundle import Bundle  # noqa: E402
from julia1.bundle.heads import HeadSpec  # noqa: E402
from julia1.cli.app import main  # noqa: E402
from julia1.train.data.rows import read_rows  # noqa: E402
from julia1.train.fit import fit  # noqa: E402
from julia1.train.items import Item  # noqa: E402
from julia1.train.losses import teacher_loss  # noqa: E402
from julia1.train.package import Fitted  # noqa: E402
from julia1.train.parts import make_parts  # noqa: E402
from julia1.train.start import start_from_bundle  # noqa: E402
from julia1.train.teaching import find_teacher  # noqa: E402

TOPICS = ("food", "hotel", "music")
WORDS = ("order", "late", "team", "good", "great", "please", "today", "want")
SETTINGS = replace(TOY, epochs=12, patience=12, max_tokens=24)


def rows(number: int, seed: int, right: bool) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    found = []
    for i in range(number):
        topic = TOPICS[i % 3]
        words = [*map(str, random.choice(WORDS, 4)), topic, str(random.integers(10_000))]
        label = topic if right else str(random.choice(TOPICS))
        found.append({"text": " ".join(words), "answers": {"topic": label, "fine": bool(i % 3)}})
    return found


def written(folder: Path, data: list[dict[str, Any]], name: str = "rows.jsonl") -> Path:
    (folder / name).write_text("\n".join(map(json.dumps, data)))
    return folder / name


@pytest.fixture(scope="module")
def teacher(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder = tmp_path_factory.mktemp("teacher")
    parts = make_parts(read_rows([written(folder, rows(240, 1, right=True))]), None, None, 1)
    start = start_from_bundle(Bundle.open(tiny_bundle))
    return fit(parts, start, folder / "run", SETTINGS, name="teacher", version="1")


def accuracy(bundle: Path) -> float:
    decider = load(bundle, variant="fp32", threads=1)
    truth = rows(90, 7, right=True)
    found = decider.decide_many([row["text"] for row in truth])
    return float(
        np.mean([a["topic"].choice == row["answers"]["topic"] for a, row in zip(found, truth, strict=True)])  # type: ignore[union-attr]
    )


@pytest.mark.parametrize(("share", "learns"), [(1.0, True), (0.0, False)])
def test_a_student_believes_its_teacher_by_its_share(
    share: float, learns: bool, teacher: Fitted, tiny_bundle: Path, tmp_path: Path
) -> None:
    assert accuracy(teacher.bundle.folder) > 0.95
    parts = make_parts(read_rows([written(tmp_path, rows(240, 2, right=False))]), None, None, 1)
    validation = read_rows([written(tmp_path, rows(60, 3, right=True), "val.jsonl")]).rows
    parts = replace(parts, validation=validation)
    student = fit(
        parts,
        start_from_bundle(Bundle.open(tiny_bundle)),
        tmp_path / "run",
        replace(SETTINGS, teacher_share=share),
        name="student",
        version="1",
        teacher=find_teacher(teacher.bundle.folder),
    )
    assert (accuracy(student.bundle.folder) > 0.9) is learns
    assert student.bundle.manifest.provenance["teacher"] == "teacher 1"


def test_a_teacher_gives_its_logits_in_the_students_order(teacher: Fitted, tmp_path: Path) -> None:
    data = read_rows([written(tmp_path, rows(9, 4, right=True))]).rows
    asked = [
        HeadSpec("topic", "choice", TOPICS[::-1]),
        HeadSpec("fine", "yesno", ("no", "yes")),
        HeadSpec("x", "value"),
    ]
    found = find_teacher(teacher.bundle.folder).logits(data, asked)
    assert set(found) == {"topic", "fine"}
    chosen = [TOPICS[::-1][int(values.argmax())] for values in found["topic"]]
    assert chosen == [row.answers["topic"] for row in data]


def test_an_open_model_teaches_choices(tiny_bundle: Path, tmp_path: Path) -> None:
    data = read_rows([written(tmp_path, rows(4, 4, right=True))]).rows
    asked = [HeadSpec("topic", "choice", TOPICS), HeadSpec("fine", "yesno", ("no", "yes"))]
    found = find_teacher(tiny_bundle).logits(data, asked)
    assert {name: [values.shape for values in of] for name, of in found.items()} == {"topic": [(3,)] * 4}


def test_a_teacher_of_texts_teaches_a_student_with_features_and_no_pairs(teacher: Fitted, tmp_path: Path) -> None:
    data = read_rows([written(tmp_path, rows(4, 4, right=True))]).rows
    featured = [replace(row, features={"age": 3.0}) for row in data]
    known, asked = find_teacher(teacher.bundle.folder), [HeadSpec("topic", "choice", TOPICS)]
    assert len(known.logits(featured, asked)["topic"]) == 4
    with pytest.raises(InputError, match="reads one text, the rows have two"):
        known.logits([replace(row, second="b") for row in data], asked)


def test_a_hugging_face_classifier_teaches(tokenizer_file: Path, tmp_path: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    config = BertConfig(
        vocab_size=448,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        id2label=dict(enumerate(("hotel", "music", "food"))),
    )
    BertForSequenceClassification(config).save_pretrained(tmp_path / "model")
    PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_file), pad_token="<pad>").save_pretrained(tmp_path / "model")
    data = read_rows([written(tmp_path, rows(5, 4, right=True))]).rows
    teacher = find_teacher(tmp_path / "model")
    ours = teacher.logits(data, [HeadSpec("topic", "choice", TOPICS)])["topic"]
    theirs = teacher.logits(data, [HeadSpec("topic", "choice", ("hotel", "music", "food"))])["topic"]
    assert all(np.allclose(a, b[[2, 0, 1]]) for a, b in zip(ours, theirs, strict=True))
    assert teacher.logits(data, [HeadSpec("topic", "choice", ("a", "b"))]) == {}
    assert [vector.shape for vector in teacher.vectors(data)] == [(16,)] * 5
    pairs = [replace(row, second="music please") for row in data]
    of_pairs = teacher.logits(pairs, [HeadSpec("topic", "choice", TOPICS)])["topic"]
    assert not any(np.allclose(a, b) for a, b in zip(ours, of_pairs, strict=True)), "both texts are read"
    long = [replace(row, text="please " * 2000) for row in data]
    assert len(teacher.logits(long, [HeadSpec("topic", "choice", TOPICS)])["topic"]) == 5


def test_a_student_learns_how_texts_are_alike_to_its_teacher(
    teacher: Fitted, tiny_bundle: Path, tmp_path: Path
) -> None:
    data = rows(60, 8, right=True)
    known = find_teacher(teacher.bundle.folder)
    parts = make_parts(read_rows([written(tmp_path, data)]), None, None, 1)

    def likeness(vectors: list[Any]) -> Any:
        unit = np.stack(vectors) / np.linalg.norm(np.stack(vectors), axis=1, keepdims=True)
        return unit @ unit.T

    wanted = likeness(known.vectors(parts.train))
    apart = {}
    for weight in (0.0, 50.0):
        settings = replace(SETTINGS, epochs=4, teacher_share=0.0, teacher_hidden=weight)
        start = start_from_bundle(Bundle.open(tiny_bundle))
        student = fit(parts, start, tmp_path / f"{weight}", settings, name="student", version="1", teacher=known)
        found = likeness(find_teacher(student.bundle.folder).vectors(parts.train))
        apart[weight] = float(np.square(found - wanted).mean())
    assert apart[50.0] < 0.7 * apart[0.0]


def test_the_loss_is_nothing_for_a_student_that_agrees() -> None:
    spec = HeadSpec("topic", "choice", TOPICS)
    logits = np.array([1.0, -2.0, 0.5], np.float32)
    item = Item([1, 2], {}, teacher={"topic": logits})
    outputs = torch.tensor(logits)[None]
    assert float(teacher_loss(spec, outputs + 3.0, [item], 2.0)) == pytest.approx(0.0, abs=1e-6)
    assert float(teacher_loss(spec, outputs * 0, [item], 2.0)) > 0.1
    assert float(teacher_loss(spec, outputs, [Item([1, 2], {})], 2.0)) == 0.0


def test_a_teacher_of_other_heads_and_bad_flags_are_named(
    teacher: Fitted, tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = [{"text": f"{row['text']}", "label": row["answers"]["topic"] + "!"} for row in rows(60, 5, right=True)]
    command = ["train", str(written(tmp_path, other)), "-o", str(tmp_path / "out"), "--base", str(tiny_bundle)]
    flags = ["--max-tokens", "24", "--teacher", str(teacher.bundle.folder)]
    assert main([*command, *flags]) == 2
    assert "the teacher answers none of these heads" in capsys.readouterr().err
    assert main([*command, *flags, "--set", "teacher_temperature=0"]) == 2
    assert "the temperature above 0" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text("{}")
    with pytest.raises(InputError, match="no classifier that can teach"):
        find_teacher(tmp_path / "empty")
