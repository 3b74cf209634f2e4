"""Golden files: what is written is read, and what is broken or hostile is one clear error."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1 import InputError
from julia1.bundle import Bundle
from julia1.runtime.golden import check_golden, file, make_golden, read_golden, write_golden


@pytest.fixture(scope="module")
def written(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("golden") / "golden.json.gz"
    write_golden(make_golden(Bundle.open(tiny_bundle), "fp32", threads=1), place)
    return place


@pytest.fixture(scope="module")
def data(written: Path) -> Any:
    return json.loads(gzip.decompress(written.read_bytes()))


def test_a_file_is_read_as_it_was_written(written: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    golden = read_golden(written)
    found = check_golden(golden, Bundle.open(tiny_bundle), threads=1)
    assert found.ok and found.variants[0].largest_output == 0
    write_golden(golden, tmp_path / "again.json.gz")
    assert (tmp_path / "again.json.gz").read_bytes() == written.read_bytes()
    assert written.stat().st_size < 100_000


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cut short|no golden file"),
        (b"not gzip", "damaged or no golden file"),
        (pickle.dumps({"format": "julia1 golden"}), "damaged or no golden file"),
        (gzip.compress(b""), "no golden file"),
        (gzip.compress(b"\xff\xfe"), "no golden file"),
        (gzip.compress(b"[]"), "expected an object"),
        (gzip.compress(b"{}"), "format: expected 'julia1 golden'"),
        (gzip.compress(b"[" * 200_000), "no golden file"),
        (gzip.compress(b'{"format": NaN}'), "NaN"),
        (gzip.compress(b'{"format": "julia1 golden", "format_version": 2}'), "newer julia1"),
        (gzip.compress(b'{"format": "julia1 golden", "format_version": 1}'), "missing key 'bundle'"),
        (gzip.compress(b"1" * 6000), "no golden file"),
    ],
)
def test_what_is_no_golden_file_is_one_error(tmp_path: Path, content: bytes, words: str) -> None:
    place = tmp_path / "golden.json.gz"
    place.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        read_golden(place)
    assert str(place) in str(caught.value) and len(str(caught.value)) < 500


def test_a_file_that_is_not_there_or_a_folder_is_named(tmp_path: Path) -> None:
    for place in (tmp_path / "none.json.gz", tmp_path):
        with pytest.raises(InputError, match="cannot read"):
            read_golden(place)


def test_a_cut_file_is_told(written: Path, tmp_path: Path) -> None:
    content = written.read_bytes()
    place = tmp_path / "cut.json.gz"
    for length in (5, 15, len(content) // 2, len(content) - 1):
        place.write_bytes(content[:length])
        with pytest.raises(InputError, match="cut short"):
            read_golden(place)


def test_a_changed_byte_is_found(written: Path, tmp_path: Path) -> None:
    content = bytearray(written.read_bytes())
    content[len(content) // 2] ^= 255
    place = tmp_path / "changed.json.gz"
    place.write_bytes(content)
    with pytest.raises(InputError, match=r"damaged|no golden file|cut short"):
        read_golden(place)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MOST_BYTES", 1 << 20)
    place = tmp_path / "bomb.json.gz"
    place.write_bytes(gzip.compress(b" " * (64 << 20)))
    with pytest.raises(InputError, match="unpacks to more than 1 MiB"):
        read_golden(place)


def paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each value; the first two items of a list stand for all."""
    found = [path]
    items = (
        list(data.items()) if isinstance(data, dict) else list(enumerate(data))[:2] if isinstance(data, list) else []
    )
    for key, value in items:
        found += paths(value, (*path, key))
    return found


@given(
    pick=st.integers(0, 10**9), value=st.sampled_from([None, "", "x", -1, 1e308, [], {}, [[]], {"x": 1}, True, 10**400])
)
def test_any_value_of_another_kind_is_one_error_or_no_harm(
    data: Any, tmp_path: Path, tiny_bundle: Path, pick: int, value: Any
) -> None:
    changed = json.loads(json.dumps(data))
    ways = paths(changed)[1:]
    way = ways[pick % len(ways)]
    part = changed
    for key in way[:-1]:
        part = part[key]
    part[way[-1]] = value
    place = tmp_path / "golden.json.gz"
    place.write_bytes(gzip.compress(json.dumps(changed).encode(), 1))
    try:
        check_golden(read_golden(place), Bundle.open(tiny_bundle, verify=False), threads=1).to_dict()
    except InputError as error:
        assert "\n" not in str(error).strip() or len(str(error)) < 1000


def test_a_place_that_cannot_be_written_keeps_what_was_there(written: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write"):
        write_golden(read_golden(written), tmp_path / "no folder" / "golden.json.gz")
