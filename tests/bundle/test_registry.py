"""The version registry: adding, aliases, deleting, comparing, and what a broken or hostile one does."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
import stat
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bundle_samples import FACTS, small_manifest
from hypothesis import given
from hypothesis import strategies as st

from julia1.bundle import Bundle, BundleWriter, Registry, verify_bundle, zip_bundle
from julia1.bundle.files import locked, sync
from julia1.bundle.places import read_aliases
from julia1.bundle.runs import Run
from julia1.errors import BundleError, InputError, VerificationError

Make = Callable[..., Path]


def names_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_a_version_is_a_whole_bundle_with_its_run(registry: Registry, make: Make) -> None:
    made = make()
    stored = registry.add(made)
    assert (stored.new, stored.wanted, str(stored.place)) == (True, "1", "tickets@1")
    assert stored.place.folder == registry.folder / "tickets" / "1"
    assert {check.status for check in verify_bundle(stored.place.folder)} == {"ok"}
    assert names_below(stored.place.folder) == {*names_below(made), "run.json"}
    run = registry.run(stored.place)
    told = json.loads((stored.place.folder / "run.json").read_text())
    assert told == json.loads(json.dumps(run.to_dict()))
    assert {key: told[key] for key in FACTS} == FACTS
    assert Bundle.open(stored.place.folder).manifest == Bundle.open(made).manifest


def test_files_are_copies_that_nothing_in_the_run_can_change(registry: Registry, make: Make) -> None:
    made = make()
    stored = registry.add(made).place.folder
    for name in names_below(made):
        if (made / name).is_file():
            assert (stored / name).stat().st_nlink == (made / name).stat().st_nlink == 1, name
    with (made / "weights.bin").open("r+") as file:  # in place
        file.write("v")
    assert {check.status for check in verify_bundle(stored)} == {"ok"}
    make(seed=2)  # the run's folder is written again
    shutil.rmtree(made)
    assert {check.status for check in verify_bundle(stored)} == {"ok"}


def test_a_bundle_that_may_only_be_read_is_taken(
    registry: Registry, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make()
    for name in names_below(made):
        if (made / name).is_file():
            (made / name).chmod(0o444)
    open_file = os.open

    def as_a_user(path: Any, flags: int, *mode: int) -> int:
        """What the system says to those who are not root."""
        place = Path(path)
        if flags & (os.O_WRONLY | os.O_RDWR) and place.exists() and not place.stat().st_mode & 0o200:
            raise PermissionError(13, "Permission denied", str(path))
        return open_file(path, flags, *mode)

    monkeypatch.setattr(os, "open", as_a_user)
    stored = registry.add(made).place.folder
    assert {check.status for check in verify_bundle(stored)} == {"ok"}
    sync(made / "weights.bin")


def test_the_same_content_is_kept_once(registry: Registry, make: Make) -> None:
    registry.add(make())
    later = {"finished": "2027-01-01T00:00:00+00:00", "seconds": 99.0, "environment": {"cpu": "another"}}
    again = registry.add(make("other", run=later))
    assert (again.new, again.place.version) == (False, "1")
    assert [entry.place.version for entry in registry.entries("tickets")] == ["1"]
    assert not [name for name in names_below(registry.folder) if "partial" in name]


def test_the_same_content_is_found_under_any_version_when_nobody_chose_one(registry: Registry, make: Make) -> None:
    first = registry.add(make("a", "2026.11.29"))
    registry.add(make("b", "2026.11.28", seed=2))
    today = make("c", "2026.11.30")
    again = registry.add(today, once=True)
    assert (again.new, again.place, again.wanted) == (False, first.place, "2026.11.30")
    (first.place.folder / "run.json").unlink()
    assert registry.add(today, once=True).place == first.place
    assert registry.run(first.place).version == "2026.11.29", "a broken run.json is mended"
    assert registry.add(make("d", "2026.11.30", seed=3), once=True).new
    chosen = registry.add(make("e", "best"))
    assert (chosen.new, chosen.place.version) == (True, "best"), "a version that was named is kept"


def test_another_model_of_the_same_version_gets_the_next_number(registry: Registry, make: Make) -> None:
    first = registry.add(make()).place.folder / "bundle.json"
    before = first.read_bytes()
    second = registry.add(make("second", seed=2))
    assert (second.new, second.wanted, second.place.version) == (True, "1", "1.2")
    assert registry.add(make("third", seed=3)).place.version == "1.3"
    assert registry.add(make("second", seed=2)) == replace(second, new=False)
    assert first.read_bytes() == before
    opened = Bundle.open(second.place.folder)
    assert opened.manifest.version == registry.run(second.place).version == "1.2"
    assert "version 1.2." in (second.place.folder / "card.md").read_text()
    assert {check.status for check in opened.verify()} == {"ok"}
    assert "version 1." in (second.place.folder.parents[2] / "second/card.md").read_text(), "the run's is as it was"
    assert {check.status for check in verify_bundle(second.place.folder.parents[2] / "second")} == {"ok"}


def test_a_version_may_be_given(registry: Registry, make: Make) -> None:
    made = make(version="1.0 beta, of Tuesday")
    with pytest.raises(InputError, match=r"version '1.0 beta, of Tuesday' cannot stand in the registry"):
        registry.add(made)
    assert registry.add(made, "1.0-beta").place.version == "1.0-beta"


def test_a_zip_and_a_bundle_without_its_checkpoint_are_taken(registry: Registry, make: Make, tmp_path: Path) -> None:
    archive = zip_bundle(make(), tmp_path / "tickets.zip", checkpoint=False)
    folder = registry.add(archive).place.folder
    assert {check.status for check in verify_bundle(folder)} == {"ok", "left out"}


def test_a_damaged_bundle_is_refused(registry: Registry, make: Make) -> None:
    made = make()
    (made / "weights.bin").write_text("v" * 4096)
    with pytest.raises(VerificationError, match=r"weights.bin is changed"):
        registry.add(made)
    assert registry.names() == []
    assert not [name for name in names_below(registry.folder) if "partial" in name]


def test_aliases_are_promoted_and_replaced(registry: Registry, make: Make) -> None:
    for number in ("1", "2"):
        registry.add(make(number, number))
    assert registry.promote("tickets@1") == (registry.find("tickets@1"), None)
    assert registry.promote("tickets@2", "staging")[1] is None
    place, replaced = registry.promote("tickets@staging")
    assert (place.version, replaced) == ("2", "1")
    assert read_aliases(registry.folder / "tickets") == {"production": "2", "staging": "2"}
    assert registry.aliases(registry.find("tickets@2")) == ("production", "staging")
    assert registry.find("tickets") == registry.find("tickets@production") == registry.find("tickets@2")


def test_a_changed_version_is_not_promoted(registry: Registry, make: Make) -> None:
    folder = registry.add(make()).place.folder
    graph = folder / "model.onnx"
    graph.unlink()
    graph.write_text("grapf")
    with pytest.raises(VerificationError, match=r"model.onnx is changed"):
        registry.promote("tickets@1")
    other = make("other", seed=2)
    for name in names_below(other) - {"checkpoint"}:
        (folder / name).unlink()
        shutil.copyfile(other / name, folder / name)
    with pytest.raises(VerificationError, match=r"bundle.json is not the one that was added"):
        registry.promote("tickets@1")
    (folder / "bundle.json").write_text("{")
    with pytest.raises(VerificationError, match=r"bundle.json"):
        registry.promote("tickets@1")
    assert read_aliases(folder.parent) == {}


def test_deleting_spares_what_an_alias_points_to(registry: Registry, make: Make) -> None:
    for number in ("1", "2"):
        registry.add(make(number, number))
    registry.promote("tickets@1")
    registry.promote("tickets@2", "staging")
    with pytest.raises(InputError, match="tickets@1 is production"):
        registry.delete("tickets@1")
    with pytest.raises(InputError, match="is an alias: to delete its version, say tickets@1"):
        registry.delete("tickets@production", force=True)
    with pytest.raises(InputError, match="names no version"):
        registry.delete("tickets", force=True)
    assert registry.delete("tickets@1", force=True) == ("production",)
    assert read_aliases(registry.folder / "tickets") == {"staging": "2"}
    assert names_below(registry.folder / "tickets") >= {"2", "2/run.json"}
    assert [entry.place.version for entry in registry.entries("tickets")] == ["2"]
    registry.delete("tickets@2", force=True)
    assert registry.names() == []
    assert registry.add(make("1")).new


def test_a_version_is_renamed_before_its_aliases_go(
    registry: Registry, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add(make())
    registry.promote("tickets@1")
    home = registry.folder / "tickets"
    seen: list[bool] = []

    def full(folder: Path, aliases: dict[str, str]) -> None:
        seen.append((home / "1").exists())
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("julia1.bundle.registry._write_aliases", full)
        with pytest.raises(BundleError, match="No space left"):
            registry.delete("tickets@1", force=True)
    assert seen == [False]
    assert registry.find("tickets@production").version == "1", "all is as it was"


def test_an_alias_is_taken_away(registry: Registry, make: Make) -> None:
    registry.add(make())
    registry.promote("tickets@1")
    registry.promote("tickets@1", "staging")
    for call, message in (
        (lambda: registry.unalias("tickets", "stagin"), "tickets has no alias 'stagin'; did you mean 'staging'?"),
        (lambda: registry.unalias("tickts", "staging"), "no model 'tickts'; did you mean 'tickets'?"),
        (lambda: registry.unalias("tickets", "../x"), "the alias '../x' cannot stand"),
        (lambda: registry.unalias("..", "x"), "the name '..' cannot stand"),
    ):
        with pytest.raises(InputError) as raised:
            call()
        assert message in str(raised.value)
    assert registry.unalias("tickets", "staging") == "1"
    assert read_aliases(registry.folder / "tickets") == {"production": "1"}
    assert registry.unalias("tickets") == "1"
    assert registry.delete("tickets@1") == ()


@given(
    dates=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    keep=st.integers(1, 7),
    pointed=st.sets(st.integers(0, 5), max_size=2),
)
def test_pruning_keeps_the_last_and_what_an_alias_points_to(
    tmp_path_factory: pytest.TempPathFactory, dates: list[int], keep: int, pointed: set[int]
) -> None:
    registry = Registry(tmp_path_factory.mktemp("pruned"))
    home = registry.folder / "tickets"
    digits = "0" * 64
    for number, minute in enumerate(dates):
        (home / str(number)).mkdir(parents=True)
        (home / str(number) / "bundle.json").touch()
        run = Run("tickets", str(number), "open", digits, f"2026-11-30T10:0{minute}:00+00:00")
        (home / str(number) / "run.json").write_text(run.to_json())
    used = {str(number) for number in pointed if number < len(dates)}
    (home / "aliases.json").write_text(json.dumps({f"alias{version}": version for version in used}))
    order = [str(number) for number in sorted(range(len(dates)), key=lambda number: (dates[number], number))]
    gone = registry.prune("tickets", keep)
    left = {entry.place.version for entry in registry.entries("tickets")}
    assert left == {*order[-keep:], *used}
    assert {place.version for place in gone} == {*order} - left
    assert {path.name for path in home.iterdir()} == {*left, "aliases.json", ".lock"}
    assert registry.prune("tickets", keep) == ()


def test_pruning_leaves_what_it_cannot_tell_the_age_of(registry: Registry, make: Make) -> None:
    for number in ("1", "2", "3"):
        registry.add(make(number, number))
    (registry.folder / "tickets/1/run.json").write_text("{")
    assert [str(place) for place in registry.prune("tickets", 1)] == ["tickets@2"]
    assert [entry.place.version for entry in registry.entries("tickets")] == ["1", "3"]
    (registry.folder / "tickets/aliases.json").write_text("{")
    with pytest.raises(BundleError, match=r"aliases.json is broken"):
        registry.prune("tickets", 1)
    with pytest.raises(InputError, match="keep is 0"):
        registry.prune("tickets", 0)
    with pytest.raises(InputError, match="did you mean 'tickets'"):
        registry.prune("ticket", 1)


def test_versions_are_listed_as_they_came(registry: Registry, make: Make) -> None:
    for number in ("2", "10", "1.9", "1.10"):
        registry.add(make(f"v{number}", number))
    for number, moment in (("2", 4), ("10", 1), ("1.9", 2), ("1.10", 2)):
        place = registry.folder / "tickets" / number / "run.json"
        place.write_text(json.dumps({**json.loads(place.read_text()), "added": f"2026-11-30T10:0{moment}:00+00:00"}))
    assert [entry.place.version for entry in registry.entries("tickets")] == ["10", "1.9", "1.10", "2"]
    (registry.folder / "tickets/2/run.json").write_text("{")
    broken = registry.entries("tickets")[0]
    assert broken.run is None
    assert "run.json is not JSON" in broken.problem


class TestBroken:
    """Files that someone wrote into."""

    @pytest.mark.parametrize(
        "content",
        ["", "{", "[]", "\x00", '{"production": 1}', '{"production": "../.."}', '{"a b": "1"}', "[" * 100_000],
    )
    def test_aliases_are_one_clear_error(self, registry: Registry, make: Make, content: str) -> None:
        registry.add(make())
        place = registry.folder / "tickets" / "aliases.json"
        place.write_text(content)
        for call in (
            lambda: registry.find("tickets"),
            lambda: registry.find("tickets@production"),
            lambda: registry.promote("tickets@1"),
            lambda: registry.unalias("tickets", "production"),
            lambda: registry.delete("tickets@1"),
            lambda: registry.add(make("other", seed=2)),
            lambda: registry.require_room("tickets", "2"),
        ):
            with pytest.raises(BundleError, match=r"aliases.json is broken: .*delete it and promote again"):
                call()
        (entry,) = registry.entries("tickets")
        assert entry.run is not None
        assert "aliases.json is broken" in entry.problem
        assert registry.find("tickets@1") == entry.place, "a version needs no alias"
        registry.delete("tickets@1", force=True)
        assert registry.names() == []
        place.unlink()
        registry.add(make())
        registry.promote("tickets@1")

    def test_an_alias_of_a_version_that_is_gone_says_so(self, registry: Registry, make: Make) -> None:
        registry.add(make())
        registry.promote("tickets@1")
        (registry.folder / "tickets/aliases.json").write_text('{"production": "7"}')
        with pytest.raises(BundleError, match=r"aliases.json: 'production' names version '7', which is not there"):
            registry.find("tickets")
        registry.promote("tickets@1")
        assert registry.find("tickets").version == "1"

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ("{", "is not JSON, or is truncated"),
            ("[]", "expected an object"),
            ({"seed": ...}, "missing key 'seed'"),
            ({"sead": 1}, "unknown key 'sead'; did you mean 'seed'?"),
            ({"metrics": {"test": [0.5]}}, "metrics.test: expected an object"),
            ({"metrics": {"test": {"team": 0.5}}}, "metrics.test.team: expected an object"),
            (
                {"metrics": {"test": {"team": {"accuracy": "?"}}}},
                "team.accuracy: expected a finite number",
            ),
            ({"score": float("nan")}, "run.json is not JSON, or is truncated: NaN is not a JSON number"),
            ({"hyper_parameters": {"a": [float("-inf")]}}, "-Infinity is not a JSON number"),
            ('{"score": 1e999}', "the number 1e999 is too large"),
            ('{"score": 1, "score": 2}', "the key 'score' stands twice"),
            ({"added": 3}, "added: expected a text"),
            ({"format_version": 2}, "written by a newer julia1"),
            ({"version": "2"}, "is of tickets@2, and lies in the folder of another version"),
            (None, "is missing"),
        ],
    )
    def test_a_run_is_one_clear_error_and_is_mended_by_adding(
        self, registry: Registry, make: Make, change: Any, message: str
    ) -> None:
        stored = registry.add(make()).place
        place = stored.folder / "run.json"
        whole = json.loads(place.read_text())
        if isinstance(change, dict):
            change = json.dumps({k: v for k, v in {**whole, **change}.items() if v is not ...})
        if change is None:
            place.unlink()
        else:
            place.write_text(change)
        with pytest.raises(BundleError) as raised:
            registry.run(stored)
        assert message in str(raised.value)
        assert f"julia1 registry add {stored.folder} --registry {registry.folder}" in str(raised.value)
        assert Bundle.open("tickets@1").manifest.version == "1", "it still serves"
        assert not registry.add(stored.folder).new
        assert {**registry.run(stored).to_dict(), "added": ""} == {**whole, "added": ""}

    def test_a_broken_version_is_not_taken_for_the_same(self, registry: Registry, make: Make) -> None:
        folder = registry.add(make()).place.folder
        (folder / "bundle.json").unlink()
        (folder / "bundle.json").write_text("{")
        assert registry.add(make()).place.version == "1.2"

    def test_names_that_clash_are_refused(self, registry: Registry, make: Make, tmp_path: Path) -> None:
        for number in ("1", "2"):
            registry.add(make(number, number))
        registry.promote("tickets@1", "live")
        for call in (lambda: registry.add(make("l", "live")), lambda: registry.require_room("tickets", "live")):
            with pytest.raises(InputError, match="tickets has an alias 'live'"):
                call()
        with pytest.raises(InputError, match="tickets has a version '2': give the alias another name"):
            registry.promote("tickets@1", "2")
        with pytest.raises(InputError, match=r"the alias '../x' cannot stand"):
            registry.promote("tickets@1", "../x")
        with BundleWriter(tmp_path / "odd") as writer:
            graph = writer.add_text("x", "Run.json")
            manifest = small_manifest(writer)
            writer.finish(replace(manifest, checkpoint=(*(manifest.checkpoint or ()), graph)))
        with pytest.raises(InputError, match=r"has a file 'run.json', which the registry writes"):
            registry.add(tmp_path / "odd")

    def test_a_place_that_cannot_be_written_is_told_before_training(self, make: Make, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        registry = Registry(tmp_path / "file" / "registry")
        for call in (lambda: registry.require_room("tickets", "1"), lambda: registry.add(make())):
            with pytest.raises(
                BundleError, match=r"cannot write in the registry .*JULIA1_REGISTRY names another folder"
            ):
                call()

    def test_a_folder_of_the_name_that_cannot_be_written_is_told_before_training(
        self, registry: Registry, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        registry.require_room("tickets", "1")
        home = registry.add(make()).place.folder.parent
        registry.require_room("tickets", "2")
        denied: list[Path] = []
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) not in denied)
        for place in (registry.folder, home, home / ".lock"):
            denied[:] = [place]
            with pytest.raises(BundleError, match=f"you may not write {place};"):
                registry.require_room("tickets", "2")
        (registry.folder / "other").touch()
        with pytest.raises(BundleError, match="other is not a folder"):
            registry.require_room("other", "1")

    def test_a_failed_add_leaves_nothing(self, registry: Registry, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        registry.add(make())
        before = names_below(registry.folder)

        def full(*arguments: object) -> None:
            raise OSError(28, "No space left on device")

        made = make("other", "2", seed=2)
        monkeypatch.setattr("julia1.bundle.versions.sync", full)
        with pytest.raises(BundleError, match=r"cannot write in the registry .*: No space left on device"):
            registry.add(made)
        assert names_below(registry.folder) == before


def _add(folder: Path, made: Path, queue: Any) -> None:
    stored = Registry(folder).add(made)
    queue.put((stored.place.version, stored.new))


def _promote(folder: Path, alias: str) -> None:
    Registry(folder).promote("tickets@1", alias)


class TestTogether:
    """Several processes at once."""

    def test_the_same_and_other_bundles_are_added_whole(self, registry: Registry, make: Make) -> None:
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        made = [make("a"), make("a"), make("b", seed=2), make("b", seed=2)]
        processes = [context.Process(target=_add, args=(registry.folder, place, queue)) for place in made]
        for process in processes:
            process.start()
        results = [queue.get(timeout=60) for _ in processes]
        for process in processes:
            process.join(60)
        assert sorted(results) == [("1", False), ("1", True), ("1.2", False), ("1.2", True)]
        entries = registry.entries("tickets")
        assert {entry.run.seed for entry in entries if entry.run} == {1, 2}
        for entry in entries:
            assert {check.status for check in verify_bundle(entry.place.folder)} == {"ok"}

    def test_no_alias_is_lost(self, registry: Registry, make: Make) -> None:
        registry.add(make())
        context = multiprocessing.get_context("fork")
        aliases = [f"alias{number}" for number in range(6)]
        processes = [context.Process(target=_promote, args=(registry.folder, alias)) for alias in aliases]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
        assert read_aliases(registry.folder / "tickets") == dict.fromkeys(aliases, "1")

    def test_an_alias_is_no_version_that_came_while_it_waited(self, registry: Registry, make: Make) -> None:
        registry.add(make())
        made = make("live", "live", seed=2)
        reached, waiting = threading.Event(), threading.Event()
        errors: list[Exception] = []

        def promote() -> None:
            reached.set()
            try:
                registry.promote("tickets@1", "live")
            except InputError as error:
                errors.append(error)
            waiting.set()

        thread = threading.Thread(target=promote)
        with locked(registry.folder / "tickets"):
            thread.start()
            assert reached.wait(30)
            assert not waiting.wait(0.3), "it waits for the lock"
            shutil.copytree(made, registry.folder / "tickets" / "live")
        thread.join(30)
        assert "tickets has a version 'live'" in str(errors[0])
        assert read_aliases(registry.folder / "tickets") == {}

    def test_those_who_share_a_group_may_lock(self, registry: Registry, make: Make) -> None:
        before = os.umask(0o002)
        try:
            home = registry.add(make()).place.folder.parent
        finally:
            os.umask(before)
        assert stat.S_IMODE((home / ".lock").stat().st_mode) == 0o664

    def test_windows_is_asked_until_it_grants_the_lock(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        answers: list[int | None] = [errno.EDEADLK, errno.EDEADLK, None, errno.EDEADLK, errno.ENOLCK]

        def locking(handle: int, mode: int, number: int) -> None:
            answer = answers.pop(0)
            if answer is not None:
                raise OSError(answer, "not now")

        monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_LOCK=1))
        with monkeypatch.context() as patch:
            patch.setattr("julia1.bundle.files.sys", SimpleNamespace(platform="win32"))
            with locked(tmp_path):
                assert len(answers) == 2
            with pytest.raises(OSError, match="not now") as raised, locked(tmp_path):
                pass
        assert raised.value.errno == errno.ENOLCK
        assert answers == []
