"""Where a bundle is found: at a path, or in the registry by version and alias."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from julia1.bundle import Bundle, Registry, find_bundle, verify_bundle
from julia1.bundle.places import require_name, version_key
from julia1.errors import InputError
from julia1.settings import registry_folder

Make = Callable[..., Path]


@given(st.lists(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True)))
def test_any_versions_can_be_sorted(versions: list[str]) -> None:
    backwards = [*reversed(versions)]
    assert sorted(backwards, key=version_key) == sorted(versions, key=version_key)


@given(st.lists(st.lists(st.integers(0, 10**30), min_size=1, max_size=4)))
def test_numbers_are_sorted_as_people_count(numbers: list[list[int]]) -> None:
    versions = [".".join(map(str, own)) for own in sorted(numbers)]
    backwards = [*reversed(versions)]
    assert sorted(backwards, key=version_key) == versions


class TestPlaces:
    """From a name to a folder."""

    def test_a_name_is_looked_up_and_a_path_goes_first(
        self, registry: Registry, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stored = registry.add(make()).place
        registry.promote("tickets@1")
        monkeypatch.chdir(tmp_path)
        assert find_bundle("tickets@1") == find_bundle(Path("tickets@production")) == stored.folder
        assert Bundle.open("tickets@production").manifest.name == "tickets"
        assert {check.status for check in verify_bundle("tickets@1")} == {"ok"}
        here = make("tickets@1", version="here")
        assert find_bundle("tickets@1") == Path("tickets@1")
        assert Bundle.open("tickets@1").folder == here
        with pytest.raises(InputError, match="no version or alias '2'"):
            find_bundle("tickets@2")
        for path in ("tickets", "a/b@1", "tickets@", "@1", "../tickets@1", "tickets@1@2", ""):
            assert find_bundle(path) == Path(path)

    def test_a_folder_without_a_bundle_hides_nothing(
        self, registry: Registry, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stored = registry.add(make()).place
        monkeypatch.chdir(tmp_path)
        for name in ("tickets@1", "tickets@2", "zebra@1"):
            Path(name).mkdir()
        assert find_bundle("tickets@1") == Bundle.open("tickets@1").folder == stored.folder
        for name, said in (("tickets@2", "no version or alias '2'"), ("zebra@1", "no model 'zebra'")):
            with pytest.raises(InputError) as raised:
                find_bundle(name)
            for words in (f"the folder {name} holds no bundle", said, str(registry.folder)):
                assert words in str(raised.value)
        Path("zebra@3").touch()
        assert find_bundle("zebra@3") == Path("zebra@3"), "a file may be a zip"

    def test_another_registry_is_looked_into(self, registry: Registry, make: Make, tmp_path: Path) -> None:
        other = Registry(tmp_path / "other")
        stored = other.add(make()).place
        assert find_bundle("tickets@1", other.folder) == stored.folder
        with pytest.raises(InputError, match="it is empty"):
            find_bundle("tickets@1")

    @pytest.mark.parametrize(
        ("reference", "message"),
        [
            ("ticket@1", "has no model 'ticket'; did you mean 'tickets'?"),
            ("zebra@1", "has no model 'zebra'; it has: tickets"),
            ("tickets@3", "tickets has no version or alias '3'; it has: 1, 2, staging"),
            ("tickets@stagin", "did you mean 'staging'?"),
            ("tickets", "several versions and none in production: name one of tickets@1, tickets@2"),
            ("tickets@..", "the version '..' cannot stand in the registry"),
            ("tickets@../../etc", "the version '../../etc' cannot stand in the registry"),
            ("../tickets@1", "the name '../tickets' cannot stand"),
            ("/etc@1", "the name '/etc' cannot stand"),
            ("@1", "the name '' cannot stand"),
            ("tickets@aliases.json", "it is what the registry calls a file of its own"),
        ],
    )
    def test_what_is_not_there_is_told(self, registry: Registry, make: Make, reference: str, message: str) -> None:
        for number in ("1", "2"):
            registry.add(make(number, number))
        registry.promote("tickets@1", "staging")
        with pytest.raises(InputError) as raised:
            registry.find(reference)
        assert message in str(raised.value)

    def test_an_empty_registry_says_so(self, registry: Registry) -> None:
        with pytest.raises(InputError, match="has no model 'tickets'; it is empty"):
            find_bundle("tickets@1")
        assert registry.names() == []
        with pytest.raises(InputError, match="it is empty"):
            registry.entries("tickets")

    @given(st.text(max_size=12))
    def test_no_name_leads_out_of_the_registry(self, value: str) -> None:
        try:
            name = require_name("name", value)
        except InputError:
            return
        assert Path("/registry", name).resolve().parent == Path("/registry")
        assert len(Path(name).parts) == 1

    @pytest.mark.parametrize(
        ("own", "shared", "expected"),
        [
            ("/own", "/shared", "/own"),
            ("", "/shared", "/shared/julia1/registry"),
            ("", "relative", "/home/someone/.local/share/julia1/registry"),
        ],
    )
    def test_variables_go_before_the_home_folder(
        self, monkeypatch: pytest.MonkeyPatch, own: str, shared: str, expected: str
    ) -> None:
        monkeypatch.setenv("HOME", "/home/someone")
        monkeypatch.setenv("JULIA1_REGISTRY", own)
        monkeypatch.setenv("XDG_DATA_HOME", shared)
        assert registry_folder() == Path(expected)
