"""What a search tries next: the next combination of a grid, or what an optimiser proposes (extra ``search``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from julia1.errors import InputError, MissingExtraError
from julia1.train.space import LOG_SCALE, Range, Space, combinations, has_ranges

DEFAULT_TRIALS = 20
"""Of a search that has a range."""
LEAST_RUNS, LEAST_EPOCHS = 5, 2
"""Finished runs, and looks at the validation rows, before a run is given up for being below the median."""


@dataclass(frozen=True)
class Run:
    """One combination.

    Attributes:
        number: from 1 on, in the order in which they are tried.
        chosen: the hyper-parameters that are searched over.
        score: mean over the heads of the figure that each is chosen by, on the validation rows; ``None`` when training
            failed or was given up.
        seconds: that it took.
        problem: why there is no score.
        epochs: the score at each look at the validation rows.
        given_up: it did worse than the median of the others.
        of: a digest of what it has in common with the other runs of its search: rows, start and other settings.
    """

    number: int
    chosen: Mapping[str, Any]
    score: float | None
    seconds: float
    problem: str = ""
    epochs: Sequence[float] = ()
    given_up: bool = False
    of: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


class Plan(Protocol):
    """Says what to try.

    Attributes:
        total: runs in all.
    """

    total: int

    def next(self, number: int) -> dict[str, Any]:
        """The combination of the run of this number; it is under way until ``done``."""
        ...

    def hopeless(self, epoch: int, score: float) -> bool:
        """Whether to give the run up that is under way, from its score after an epoch (counted from 1)."""
        ...

    def done(self, run: Run) -> None:
        """The end of the run that is under way."""
        ...

    def accept(self, run: Run) -> bool:
        """Take a run that was finished earlier into account; false for one of another search."""
        ...


def plan_of(space: Space, trials: int | None, seed: int) -> Plan:
    """A grid of listed values; an optimiser where a number of trials is given, or a range."""
    if trials is None and not has_ranges(space):
        return Grid(space)
    return Optimiser(space, trials or DEFAULT_TRIALS, seed)


class Grid:
    """Every combination, to its end."""

    def __init__(self, space: Space) -> None:
        self._all = combinations({name: one for name, one in space.items() if isinstance(one, list)})
        self.total = len(self._all)

    def next(self, number: int) -> dict[str, Any]:
        """As ``Plan``."""
        return self._all[number - 1]

    def hopeless(self, epoch: int, score: float) -> bool:
        """Never: a grid shows all of its runs."""
        return False

    def done(self, run: Run) -> None:
        """Nothing is learned from it."""

    def accept(self, run: Run) -> bool:
        """As ``Plan``."""
        return dict(run.chosen) == self._all[run.number - 1]


class Optimiser:
    """A tree-structured Parzen estimator (Bergstra et al. 2011) that gives up runs below the median (optuna).

    Each proposal depends on the seed, its number and the finished runs alone, so that a search which was killed goes on
    as if it had not been.
    """

    def __init__(self, space: Space, trials: int, seed: int) -> None:
        try:
            import optuna
        except ModuleNotFoundError:
            raise MissingExtraError("optuna", "search") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.total = trials
        self._optuna: Any = optuna
        self._seed = seed
        self._distributions = {name: _distribution(optuna, name, one) for name, one in space.items()}
        pruner = optuna.pruners.MedianPruner(
            n_startup_trials=LEAST_RUNS, n_warmup_steps=LEAST_EPOCHS + 1
        )  # it counts from 0, looks from 1
        self._study: Any = optuna.create_study(direction="maximize", pruner=pruner)
        self._trial: Any = None

    def next(self, number: int) -> dict[str, Any]:
        """As ``Plan``."""
        sampler = self._optuna.samplers.TPESampler(seed=(self._seed * 1_000_003 + number) % 2**32)
        self._study.sampler = sampler
        self._trial = self._study.ask(self._distributions)
        return dict(self._trial.params)

    def hopeless(self, epoch: int, score: float) -> bool:
        """As ``Plan``."""
        self._trial.report(score, epoch)
        return bool(self._trial.should_prune())

    def done(self, run: Run) -> None:
        """As ``Plan``."""
        self._study.tell(self._trial, run.score, state=self._state(run))

    def accept(self, run: Run) -> bool:
        """As ``Plan``; a run whose values lie in the space counts, also where that has grown."""
        if set(run.chosen) != set(self._distributions):
            return False
        for name, value in run.chosen.items():
            one = self._distributions[name]
            listed = isinstance(one, self._optuna.distributions.CategoricalDistribution)
            if value not in one.choices if listed else not one.low <= value <= one.high:
                return False
        score = run.epochs[-1] if run.given_up and run.epochs else run.score
        trial = self._optuna.trial.create_trial(
            state=self._state(run),
            value=score,
            params=dict(run.chosen),
            distributions=self._distributions,
            intermediate_values=dict(enumerate(run.epochs, start=1)),
        )
        self._study.add_trial(trial)
        return True

    def _state(self, run: Run) -> Any:
        states = self._optuna.trial.TrialState
        if run.given_up:
            return states.PRUNED
        return states.FAIL if run.score is None else states.COMPLETE


def _distribution(optuna: Any, name: str, one: list[Any] | Range) -> Any:
    kinds = optuna.distributions
    if not isinstance(one, Range):
        return kinds.CategoricalDistribution(one)
    if isinstance(one.low, int):
        return kinds.IntDistribution(one.low, one.high)
    return kinds.FloatDistribution(one.low, one.high, log=name in LOG_SCALE and one.low > 0)


def require_same(run: Run, plan: Plan, folder: object, of: str) -> None:
    """Raise ``InputError`` for an earlier run that is none of this search."""
    if run.of != of:
        raise InputError(f"{folder} is a run on other rows, settings or another start: name another output folder")
    if not plan.accept(run):
        raise InputError(f"{folder} is a run of another search ({dict(run.chosen)}): name another output folder")
