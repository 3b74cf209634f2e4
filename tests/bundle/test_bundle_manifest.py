"""What bundle.json may say, and how a wrong one is told."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from julia1.bundle import Calibration, EncodingSettings, FileEntry, Manifest, Variant, read_manifest
from julia1.bundle.files import inside, path_problem
from julia1.bundle.manifest import FORMAT_VERSION
from julia1.errors import BundleError

ENTRY = {"path": "a.bin", "sha256": "0" * 64, "bytes": 1}
PLAIN: dict[str, Any] = {
    "format_version": 1,
    "name": "julia1-small",
    "version": "2026.11.30",
    "kind": "open",
    "encoding": {
        "type": "options",
        "state_tokens": 384,
        "question_tokens": 64,
        "option_tokens": 64,
        "pass_tokens": 768,
    },
    "tokenizer": {**ENTRY, "path": "tokenizer.json"},
    "calibration": {"choice": {"temperature": 1.3, "per_log_options": 0.1}},
    "variants": [
        {
            "name": "int8",
            "engine": "onnxruntime",
            "precision": "int8",
            "files": [{**ENTRY, "path": "model.onnx"}, {**ENTRY, "path": "weights.bin"}],
            "requires": {"x86_64": ["sse4_2"], "aarch64": []},
            "measured": {"p50_ms": 3.2},
        }
    ],
    "checkpoint": None,
    "card": {**ENTRY, "path": "card.md"},
    "provenance": {"seed": 1},
}

steps = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=4, max_size=8)
entries = st.builds(
    FileEntry,
    path=st.lists(steps, min_size=1, max_size=3).map("/".join),
    sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
    bytes=st.integers(0, 2**40),
)
words = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=12)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
json_objects = st.dictionaries(
    words, st.recursive(st.none() | st.booleans() | st.integers() | words, lambda inner: st.lists(inner, max_size=3))
)
finite = st.floats(-1e6, 1e6)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    files = draw(st.lists(entries, min_size=3, max_size=6, unique_by=lambda entry: entry.path))
    some = st.lists(st.sampled_from(files), min_size=1, max_size=3).map(tuple)
    state, question, option, spare = (draw(st.integers(3, 10_000)) for _ in range(4))
    variant_names = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    return Manifest(
        name=draw(names),
        version=draw(words),
        kind="open",
        encoding=EncodingSettings("options", state, question, option, state + question + option + spare),
        tokenizer=files[0],
        calibration=draw(
            st.dictionaries(
                st.sampled_from(["choice", "yesno", "score"]),
                st.builds(Calibration, st.floats(1e-6, 1e6), finite),
            )
        ),
        variants=tuple(
            Variant(
                name=name,
                engine=draw(words),
                precision=draw(words),
                files=draw(some),
                requires=draw(st.dictionaries(words, st.lists(words, max_size=2).map(tuple), max_size=2)),
                measured=draw(json_objects),
            )
            for name in variant_names
        ),
        checkpoint=draw(st.none() | some),
        card=draw(st.none() | st.sampled_from(files)),
        provenance=draw(json_objects),
    )


def changed(*keys: str | int, to: Any) -> dict[str, Any]:
    """A whole manifest with one value changed."""
    data = copy.deepcopy(PLAIN)
    place: Any = data
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    return data


@settings(max_examples=25, deadline=None)
@given(manifests())
def test_a_manifest_comes_back_as_it_was_written(manifest: Manifest) -> None:
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_plain_data_keeps_its_form() -> None:
    assert Manifest.from_dict(PLAIN).to_dict() == PLAIN


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("name",), 3, "bundle.json: name: expected a name of up to 100 letters.*got 3"),
        (("name",), "../evil", "name: expected a name"),
        (("version",), " ", "version: expected a text"),
        (("kind",), "closed", "kind: expected one of open"),
        (("encoding", "type"), ["options"], "encoding.type: expected one of options"),
        (("encoding", "pass_tokens"), 100, "encoding.pass_tokens: expected at least 512"),
        (("encoding", "state_tokens"), True, "encoding.state_tokens: expected a whole number of at least 3, got True"),
        (("encoding", "state_token"), 3, "encoding: unknown key 'state_token'; did you mean 'state_tokens'"),
        (("tokenizer",), None, "tokenizer: expected an object, got None"),
        (("tokenizer", "sha256"), "0" * 63, "tokenizer.sha256: expected 64 lower-case hexadecimal digits"),
        (("tokenizer", "sha256"), "A" * 64, "tokenizer.sha256: expected 64 lower-case"),
        (("tokenizer", "bytes"), -1, "tokenizer.bytes: expected a whole number of at least 0"),
        (("tokenizer", "bytes"), 1.0, "tokenizer.bytes: expected a whole number"),
        (("tokenizer", "path"), "../x", r"tokenizer.path: the path '../x' leaves the bundle"),
        (("tokenizer", "path"), "Bundle.json", "tokenizer.path: expected a file other than bundle.json"),
        (("calibration", "choise"), {"temperature": 1}, "calibration: unknown key 'choise'; did you mean 'choice'"),
        (("calibration", "choice", "temperature"), 0, "calibration.choice.temperature: expected a number above 0"),
        (("calibration", "choice", "temperature"), "1", "temperature: expected a finite number, got '1'"),
        (("calibration", "choice", "temperature"), 10**400, "temperature: expected a finite number"),
        (("variants",), {}, "variants: expected a list"),
        (("variants",), [], "variants: expected at least one variant, or a checkpoint"),
        (("variants", 0, "files"), [], r"variants\[0\].files: expected at least one file"),
        (("variants", 0, "files", 1, "bytes"), "1", r"variants\[0\].files\[1\].bytes: expected a whole number"),
        (("variants", 0, "requires", "x86_64"), "avx2", r"variants\[0\].requires.x86_64: expected a list"),
        (("variants",), PLAIN["variants"] * 2, r"variants\[1\].name: expected a name that no other variant has"),
        (("checkpoint",), {"file": []}, "checkpoint: unknown key 'file'; did you mean 'files'"),
        (("card",), {**ENTRY, "path": "Weights.bin", "bytes": 2}, "'Weights.bin' is described twice and differently"),
        (("provenance",), [], "provenance: expected an object"),
        (("tokeniser",), {}, "unknown key 'tokeniser'; did you mean 'tokenizer'"),
        (("execute",), "rm", "unknown key 'execute'; known: format_version"),
        (("format_version",), "1", "format_version: expected a whole number"),
        (("format_version",), FORMAT_VERSION + 1, "written by a newer julia1, upgrade"),
    ],
)
def test_a_wrong_value_is_told_with_its_place(keys: tuple[str | int, ...], value: Any, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        Manifest.from_dict(changed(*keys, to=value))


@pytest.mark.parametrize("key", [key for key in PLAIN if key not in ("checkpoint", "card", "provenance")])
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(BundleError, match=f"bundle.json: missing key '{key}'"):
        Manifest.from_dict({name: value for name, value in PLAIN.items() if name != key})


def test_a_newer_format_is_told_before_anything_it_may_have_changed() -> None:
    with pytest.raises(BundleError, match="newer julia1"):
        Manifest.from_dict({"format_version": 99, "anything": 1})


@pytest.mark.parametrize("data", [None, [], "text", 3, {1: 2}])
def test_what_is_no_manifest_is_refused(data: object) -> None:
    with pytest.raises(BundleError, match=r"bundle\.json"):
        Manifest.from_dict(data)


@pytest.mark.parametrize("bad", [float("nan"), Path("x"), "\ud800"])
def test_what_json_cannot_hold_is_not_written(bad: object) -> None:
    manifest = Manifest.from_dict(changed("provenance", "x", to=bad))
    with pytest.raises(BundleError, match="cannot be written as JSON"):
        manifest.to_json()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "is not JSON, or is truncated"),
        (json.dumps(PLAIN)[:-30], "is not JSON, or is truncated"),
        (json.dumps(PLAIN).replace('"seed": 1', '"seed": NaN'), "NaN is not a JSON number"),
        (json.dumps(PLAIN).replace('"seed": 1', '"seed": 1, "seed": 2'), "'seed' stands twice"),
        ("[" * 100_000, "is not JSON"),
        ("\ufeff{}", "is not JSON"),
        (b"\xff\xfe{", "not UTF-8 at byte 0"),
    ],
)
def test_a_damaged_file_is_told_with_its_path(tmp_path: Path, source: str | bytes, message: str) -> None:
    (tmp_path / "bundle.json").write_bytes(source.encode() if isinstance(source, str) else source)
    with pytest.raises(BundleError, match=message) as caught:
        read_manifest(tmp_path)
    assert str(tmp_path) in str(caught.value)


# fmt: off
UNSAFE = [
    "", ".", "..", "../x", "a/../../x", "a/..", "/etc/passwd", "//host/x", "a//b", "a/", "./a", "C:/x", "C:x", "a\\b",
    "\\\\host\\x", "a\x00b", "a\nb", "\ud800", "...", "a./b", "a ", "NUL", "x/com1.txt", "a?",
]
# fmt: on


@pytest.mark.parametrize("path", UNSAFE)
def test_an_unsafe_path_is_refused(tmp_path: Path, path: str) -> None:
    assert path_problem(path)
    with pytest.raises(BundleError):
        inside(tmp_path, path)


@pytest.mark.parametrize("path", ["model.onnx", "checkpoint/model.safetensors", ".hidden", "模型.bin", "a b", "..a"])
def test_a_safe_path_is_taken(tmp_path: Path, path: str) -> None:
    assert inside(tmp_path, path) == tmp_path / path


@given(st.text(max_size=20) | st.text(alphabet="./\\:a ", max_size=12))
def test_any_path_is_refused_or_stays_inside(path: str) -> None:
    folder = Path(tempfile.gettempdir()) / "a-bundle"
    if path_problem(path) is None:
        assert folder.resolve() in inside(folder, path).resolve().parents


def test_files_are_listed_once_and_the_checkpoint_apart() -> None:
    data = changed("checkpoint", to={"files": [{**ENTRY, "path": "checkpoint/a"}]})
    data["variants"].append({**data["variants"][0], "name": "fp32"})
    manifest = Manifest.from_dict(data)
    required = [entry.path for entry in manifest.required_files()]
    assert required == ["tokenizer.json", "model.onnx", "weights.bin", "card.md"]
    assert [entry.path for entry in manifest.all_files()] == [*required, "checkpoint/a"]
