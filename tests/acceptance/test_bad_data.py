"""Bad rows, models and disks: one line that says what and where, and nothing half done is left behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("datasketch")
pytest.importorskip("resource", reason="limits of file sizes are of POSIX systems")

from export_samples import disk_of  # noqa: E402

from julia1.cli.app import main  # noqa: E402
from julia1.train.data.rows import MAX_LABELS  # noqa: E402

TOPICS = ("food", "music")
Line = str | Mapping[str, Any]


def good(number: int = 40) -> list[Line]:
    return [{"text": f"please {TOPICS[i % 2]} order {i} today", "label": TOPICS[i % 2]} for i in range(number)]


def with_bad(*bad: Line) -> list[Line]:
    """Good rows with bad ones from line 4 on."""
    rows = good()
    return [*rows[:3], *bad, *rows[3:]]


@dataclass(frozen=True)
class Case:
    """Bad rows.

    Attributes:
        rows: of the file.
        words: what the one error line says.
        codes: command to its exit code.
        test: of a file of test rows.
    """

    rows: Sequence[Line]
    words: Sequence[str]
    codes: Mapping[str, int]
    test: Sequence[Line] = field(default_factory=tuple)


READ = dict.fromkeys(("train", "check", "split", "clean", "balance"), 2)
LEARNED = {"train": 2, "check": 3}
CASES = {
    "a broken line": Case(with_bad('{"text": "food", "label": "fo'), ["rows.jsonl:4: not JSON"], READ),
    "a missing label": Case(with_bad({"text": "lonely"}), ["rows.jsonl:4: no answer", "'label'"], READ),
    "a missing text": Case(with_bad({"txt": "a", "label": "food"}), ["rows.jsonl:4: no field 'text'", "'txt'"], READ),
    "an empty text": Case(
        with_bad({"text": " \n", "label": "food"}),
        ["rows.jsonl:4: the text is empty"],
        {name: 2 for name in READ if name != "clean"},
    ),
    "mixed types": Case(
        with_bad({"text": "a", "label": 3}),
        ["'label' is answered with mixed types: 'food' at", "rows.jsonl:1", "3.0 at", "rows.jsonl:4"],
        READ,
    ),
    "a NaN score": Case(
        ['{"text": "a", "score": 1}', '{"text": "b", "score": NaN}'], ["rows.jsonl:2: 'score' is nan"], READ
    ),
    "an infinite score": Case(['{"text": "a", "score": 1e999}'], ["rows.jsonl:1: 'score' is inf"], READ),
    "too many labels": Case(
        [{"text": f"text {i}", "label": f"label {i}"} for i in range(MAX_LABELS + 1)],
        [f"'label' has {MAX_LABELS + 1:,} labels, {MAX_LABELS:,} are taken at most"],
        READ,
    ),
    "one label only": Case([{"text": f"a {i}", "label": "x"} for i in range(9)], ["every row has 'x'"], LEARNED),
    "a label with one row": Case(
        with_bad({"text": "rain", "label": "weather"}), ["rows.jsonl:4: the label 'weather'", "one row only"], LEARNED
    ),
    "an unknown label in the test rows": Case(
        good(),
        ["test.jsonl:2: the label 'weather' stands in no training row"],
        LEARNED,
        test=[{"text": "new food", "label": "food"}, {"text": "rain", "label": "weather"}],
    ),
    "no rows": Case([], ["rows.jsonl: no rows"], READ),
    "nothing but blanks": Case([{"text": "<br>", "label": "x"}], ["every text was markup or blank"], {"clean": 2}),
}


@dataclass(frozen=True)
class Place:
    """A folder with data, a base to train from, and what commands write into."""

    folder: Path
    base: Path

    def write(self, rows: Sequence[Line], name: str = "rows.jsonl") -> Path:
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return self.folder / name

    def command(self, name: str) -> list[str]:
        rows, out = str(self.folder / "rows.jsonl"), self.folder / "out"
        return {
            "train": ["train", rows, "-o", str(out), "--base", str(self.base), "--epochs", "1", "--max-tokens", "24"],
            "check": ["data", "check", rows, "--bundle", str(self.base), "--fast"],
            "split": ["data", "split", rows, "-o", str(out)],
            "clean": ["data", "clean", rows, "-o", str(self.folder / "clean.jsonl")],
            "balance": ["data", "balance", rows, "-o", str(self.folder / "even.jsonl"), "--most", "30"],
        }[name]

    def files(self) -> set[Path]:
        return {path for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture
def place(tmp_path: Path, tiny_bundle: Path) -> Place:
    return Place(tmp_path, tiny_bundle)


@pytest.fixture
def failed(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must fail, and gives its one error line."""

    def run(arguments: Sequence[str], code: int, silent: bool = True) -> str:
        capsys.readouterr()
        assert main(list(arguments)) == code
        out, err = capsys.readouterr()
        assert not silent or out == ""
        (line,) = [line for line in err.splitlines() if not line.startswith(("epoch ", "writing the bundle"))]
        assert line.startswith("julia1: error: "), err
        return line

    return run


@pytest.mark.parametrize(
    ("kind", "command"), [(kind, command) for kind, case in CASES.items() for command in case.codes]
)
def test_bad_rows_are_one_error_and_nothing_is_written(
    place: Place, failed: Callable[..., str], kind: str, command: str
) -> None:
    case = CASES[kind]
    place.write(case.rows)
    flags = ["--test", str(place.write(case.test, "test.jsonl"))] if case.test else []
    before = place.files()
    code = case.codes[command]
    line = failed([*place.command(command), *flags], code, silent=code != 3)  # a report is printed, and then the error
    for words in case.words:
        assert words in line
    assert place.files() == before
    assert not (place.folder / "out").exists()


def test_a_base_without_a_tokenizer_is_named(place: Place, failed: Callable[..., str]) -> None:
    place.write(good())
    (place.folder / "base").mkdir()
    (place.folder / "base" / "config.json").write_text('{"model_type": "bert"}')
    before = place.files()
    line = failed([*place.command("train"), "--base", str(place.folder / "base")], 2)
    assert f"{place.folder / 'base'} has no tokenizer.json" in line
    assert place.files() == before


def test_a_disk_that_fills_while_training_leaves_no_half_checkpoint(place: Place, failed: Callable[..., str]) -> None:
    place.write(good())
    with disk_of(40_000):
        line = failed(place.command("train"), 1)
    assert "cannot write" in line and str(place.folder / "out") in line
    assert not (place.folder / "out" / "bundle").exists()
    assert not [path for path in place.files() if path.suffix in (".tmp", ".pt")]
    assert main(place.command("train")) == 0, "with room it goes on"


@pytest.mark.slow
def test_a_disk_that_fills_while_packing_keeps_the_old_bundle(
    place: Place, failed: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    place.write(good())
    assert main(place.command("train")) == 0
    before = {path: path.read_bytes() for path in place.files()}
    with disk_of(20_000):
        line = failed(place.command("train"), 1)
    assert f"cannot write {place.folder / 'out' / 'bundle'}: " in line
    assert {path: path.read_bytes() for path in place.files()} == before
    shutil.rmtree(place.folder / "out" / "bundle")
    with disk_of(20_000):
        failed(place.command("train"), 1)
    kept = ["best.pt", "curves.png", "log.jsonl", "metrics.json", "report.html", "training.pt"]
    assert sorted(path.name for path in (place.folder / "out").iterdir()) == kept
    assert main(place.command("train")) == 0
    assert main(["verify", str(place.folder / "out" / "bundle")]) == 0


@pytest.mark.parametrize(
    ("command", "flags"),
    [("split", ["--shares", "1:8:1"]), ("clean", []), ("balance", []), ("check", ["--html", "{}/page.html"])],
)
def test_a_disk_that_fills_while_writing_rows_leaves_nothing(
    place: Place, failed: Callable[..., str], command: str, flags: list[str]
) -> None:
    place.write(good(80))
    before = place.files()
    with disk_of(1000):  # of a split, the first part fits and the second does not
        line = failed([*place.command(command), *(flag.format(place.folder) for flag in flags)], 1)
    assert "cannot write" in line and str(place.folder) in line
    assert place.files() == before
