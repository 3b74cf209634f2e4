"""The file of a training on labelled rows: all that the flags of ``julia1 train`` can say. Needs no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from julia1.errors import InputError
from julia1.train.bounds import require_bounds
from julia1.train.recipe import FineTuning, fill
from julia1.train.space import read_space

OWN_KEY, RECIPE_KEY = "rows", "sources"
"""What only a file for labelled rows has, and only a recipe."""


@dataclass(frozen=True)
class PseudoLabels:
    """Which answers of a model are believed.

    Attributes:
        threshold: calibrated probability from which on.
        quota: of each label at most so many, the surest; ``None`` for as many as have it among the labelled rows, so
            that frequent labels do not crowd out the rest.
        rounds: how often rows are labelled and the model is trained anew.
    """

    threshold: float = 0.95
    quota: int | None = None
    rounds: int = 1


@dataclass(frozen=True)
class RowTraining:
    """A training on labelled rows.

    Attributes:
        rows: files of labelled rows.
        validation, test: further files; a tenth of the rows each when ``None``.
        base: whose encoder to start from: a bundle, a Hugging Face folder or ``owner/model``; the bundled model when
            ``None``.
        name, version: of the bundle; that of the output folder, and today's date, when ``None``.
        text, answers, features: names of fields, see ``Columns``.
        settings: hyper-parameters.
        teacher: a model whose probabilities are learned too.
        unlabelled: rows for the model to label.
        pseudo: how it labels them.
        search: hyper-parameter to a list of values, or to ``LOW..HIGH``.
        trials: combinations that an optimiser tries; a grid of all values when ``None``.
    """

    rows: list[str]
    validation: str | None = None
    test: str | None = None
    base: str | None = None
    name: str | None = None
    version: str | None = None
    text: str | None = None
    answers: list[str] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    settings: FineTuning = field(default_factory=FineTuning)
    teacher: str | None = None
    unlabelled: str | None = None
    pseudo: PseudoLabels = field(default_factory=PseudoLabels)
    search: dict[str, Any] = field(default_factory=dict)
    trials: int | None = None


def is_recipe(data: Any, where: str) -> bool:
    """Whether a YAML file is a recipe of an open-decision model, and not a file for labelled rows.

    Raises:
        InputError: it is neither, or both.
    """
    keys = list(data) if isinstance(data, dict) else []
    if (OWN_KEY in keys) == (RECIPE_KEY in keys):
        has = "both" if OWN_KEY in keys else f"neither, but {', '.join(map(str, keys))}" if keys else "no key"
        raise InputError(
            f"{where} has {has:.200}: training on labelled rows needs the key {OWN_KEY!r}, a list of files; a recipe "
            f"of an open-decision model needs {RECIPE_KEY!r}"
        )
    return RECIPE_KEY in keys


def read_config(data: Mapping[str, Any], where: str, folder: Path, defaults: FineTuning) -> RowTraining:
    """A configuration from the keys and values of a file.

    Args:
        data: of the file.
        where: how errors call it.
        folder: of the file; relative paths start there.
        defaults: hyper-parameters that the file does not name.

    Raises:
        InputError: an unknown or missing key, a value of another type, or a hyper-parameter out of its bounds.
    """
    given = data.get("settings")
    if isinstance(given, dict):
        data = {**data, "settings": {**asdict(defaults), **given}}
    else:
        data = {**data} if "settings" in data else {**data, "settings": asdict(defaults)}
    config = fill(RowTraining, data, where)
    places: dict[str, Any] = {key: _from(folder, getattr(config, key)) for key in ("validation", "test", "unlabelled")}
    places |= {key: _model_from(folder, getattr(config, key)) for key in ("base", "teacher")}
    config = replace(config, rows=[str(folder / path) for path in config.rows], **places)
    check_config(config, where)
    return config


def check_config(config: RowTraining, where: str = "") -> None:
    """Raise ``InputError`` for what cannot be trained whatever the rows are; ``where`` is the file it comes from."""
    where = f"{where}: " if where else ""
    if not config.rows:
        raise InputError(f"{where}rows is empty: name at least one file of labelled rows")
    if config.trials is not None and config.trials < 1:
        raise InputError(f"{where}trials is {config.trials}: at least 1, or leave it out for a grid")
    if config.trials is not None and not config.search:
        raise InputError(f"{where}{config.trials} trials of nothing: say what to search over")
    if config.search and config.unlabelled is not None:
        raise InputError(f"{where}--search has no place beside --unlabelled: search first, then label")
    require_bounds(config.settings, where)
    read_space(config.search, f"{where}search")


MACHINE = ("threads", "bf16")
"""Hyper-parameters that nobody names go by the machine."""


def portable(config: RowTraining, machine: FineTuning) -> dict[str, Any]:
    """Plain data that ``read_config`` reads back from any folder: paths that exist are absolute.

    What goes by the machine is left to the machine that reads it, unless it was chosen.
    """
    data = asdict(config)
    for name in MACHINE:
        if getattr(config.settings, name) == getattr(machine, name):
            del data["settings"][name]
    data["rows"] = [str(Path(path).absolute()) for path in config.rows]
    for key in ("validation", "test", "unlabelled"):
        data[key] = None if data[key] is None else str(Path(data[key]).absolute())
    for key in ("base", "teacher"):
        data[key] = _model_from(Path.cwd(), data[key])
    return data


def _from(folder: Path, path: str | None) -> str | None:
    return None if path is None else str(folder / path)


def _model_from(folder: Path, place: str | None) -> str | None:
    """A path where there is one, else as it stands: a name on the hub."""
    return str(folder / place) if place is not None and (folder / place).exists() else place
