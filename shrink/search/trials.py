"""The trials of a search, in a journal file that its workers share.

An Optuna study holds them: a trial waits, runs, or has ended. A worker asks for one under a lock on
the journal, so that no two workers train the same recipe. A trial that runs while its search's
folder is free, or for much longer than any other took, belongs to a worker that died: it is marked
as stopped, and its settings wait for the next worker.
"""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shrink.base import files
from shrink.base.errors import RecipeError, ResourceError
from shrink.base.foreign import Json
from shrink.base.packages import DISTRIBUTION
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.search import Trial
from shrink.search.goal import Goal, cost_of
from shrink.search.space import Settings, Space

if TYPE_CHECKING:
    import optuna

_TRIAL, _SETTINGS, _RECIPE = "trial", "settings", "recipe"
_OWNER, _STARTED = "owner", "started"
_CONSTRAINTS = "constraints"
_DEAD_AFTER_S, _DEAD_AFTER = 3600.0, 4.0
"""A trial is given up after this many seconds, and this many times the longest one's duration."""
_FAR = 1e12
"""Replaces an infinite cost, which Optuna does not take."""


@dataclass(frozen=True)
class Asked:
    """A trial that this worker is to train."""

    number: int
    settings: dict[str, Json]
    trial: optuna.Trial


class Trials:
    """The trials of a search.

    Args:
        place: the journal file.
        name: of the search.
        goal: what is optimised.
        space: what is varied.
        identity: of recipe, data, goal and space: another search is refused.
        owner: which folder's search this worker belongs to.
        sampler: suggests settings where nobody else chooses them; None for Optuna's TPE.
        seed: of TPE.

    Raises:
        RecipeError: the journal holds another search of this name.
    """

    def __init__(
        self,
        place: Path,
        name: str,
        goal: Goal,
        space: Space,
        identity: str,
        owner: str,
        sampler: optuna.samplers.BaseSampler | None = None,
        seed: int = 0,
    ) -> None:
        import optuna

        self.goal, self.space = goal, space
        self._owner = owner
        self._lock = place.with_name(f".{place.name}.lock")  # without the dot it is Optuna's own
        with _quiet():
            self._study = optuna.create_study(
                study_name=name,
                storage=open_journal(place),
                load_if_exists=True,
                directions=["minimize"] * len(goal.optimised),
                sampler=sampler or tpe_sampler(seed),
            )
        known = self._study.user_attrs.get("identity")
        if known is not None and known != identity:
            raise RecipeError(
                "the journal holds a search of this name for another recipe, space, or limits",
                subject=name,
                hint="choose another --output or --storage, or start again with --force",
            )
        if known is None:
            self._study.set_user_attr("identity", identity)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other workers from asking."""
        with files.locked(self._lock):
            yield

    def begin(self, first: Sequence[Settings]) -> None:
        """Have these settings tried before others, unless the search has begun already."""
        with self.locked():
            if not self._frozen():
                for settings in first:
                    self._enqueue(settings)

    def ask(self, settings: Settings | None = None) -> Asked:
        """Return the next trial, under the lock.

        Args:
            settings: of the trial; None for those that wait, else what the sampler suggests.
        """
        if settings is not None:
            self._enqueue(settings)
        with _quiet():
            trial = self._study.ask()
            suggested = self.space.suggest(trial)
        given = trial.user_attrs.get(_SETTINGS)
        found: dict[str, Json] = json.loads(given) if given else suggested
        trial.set_user_attr(_SETTINGS, json.dumps(found))
        trial.set_user_attr(_OWNER, self._owner)
        trial.set_user_attr(_STARTED, time.time())
        return Asked(trial.number, found, trial)

    def waits(self) -> bool:
        """Whether settings wait to be tried."""
        from optuna.trial import TrialState

        return any(one.state == TrialState.WAITING for one in self._frozen())

    def register(self, asked: Asked, recipe: str) -> bool:
        """Say which recipe a trial stands for, under the lock; whether no other trial does.

        One that does is forgotten: other settings meant the same.
        """
        from optuna.trial import TrialState

        if recipe in self.recipes():
            self._study.tell(asked.trial, state=TrialState.FAIL)
            return False
        asked.trial.set_user_attr(_RECIPE, recipe)
        return True

    def end(self, asked: Asked, trial: Trial, excesses: Mapping[str, float]) -> None:
        """Record how a trial ended.

        Args:
            asked: the trial.
            trial: what is known of it.
            excesses: by limit, by how much it is exceeded; at most 0 where it holds.
        """
        from optuna.trial import TrialState

        with _unless_ended():
            asked.trial.set_user_attr(_CONSTRAINTS, list(excesses.values()) or [0.0])
            asked.trial.set_user_attr(_TRIAL, json.dumps(to_plain(trial)))
            if trial.status == "done":
                ranked = [cost_of(n, trial.figures.get(n)) for n in self.goal.optimised]
                self._study.tell(asked.trial, [min(cost, _FAR) for cost in ranked])
            elif trial.status == "infeasible":
                self._study.tell(asked.trial, state=TrialState.PRUNED)
            else:
                self._study.tell(asked.trial, state=TrialState.FAIL)

    def stop_dead(self, mine: bool = False) -> None:
        """Mark the trials of workers that died as stopped, under the lock; their settings wait.

        Args:
            mine: whether no worker of this search's folder is alive, so that all its trials are.
        """
        from optuna.trial import TrialState

        longest = max((one.duration_s or 0.0 for one in self.trials()), default=0.0)
        limit = max(_DEAD_AFTER_S, _DEAD_AFTER * longest)
        for one in self._frozen():
            attributes = one.user_attrs
            if one.state != TrialState.RUNNING:
                continue
            age = time.time() - float(attributes.get(_STARTED, 0.0 if mine else time.time()))
            if age > limit or (mine and attributes.get(_OWNER) in (None, self._owner)):
                waits = _SETTINGS in attributes and _TRIAL not in attributes  # else it had ended
                self._stop(one.number, json.loads(attributes[_SETTINGS]) if waits else None)

    def _stop(self, number: int, settings: Settings | None) -> None:
        """Mark a trial as stopped, once its settings wait: a kill between loses neither."""
        from optuna.trial import TrialState

        if settings is not None:
            self._enqueue(settings)
        with _unless_ended():
            self._study.tell(number, state=TrialState.FAIL)

    def _enqueue(self, settings: Settings) -> None:
        with _quiet():
            self._study.enqueue_trial(
                self.space.encode(settings), {_SETTINGS: json.dumps(dict(settings))}
            )

    def trials(self) -> list[Trial]:
        """Return the trials of all workers that have ended, by their numbers."""
        found = []
        for one in self._frozen():
            attributes = one.user_attrs
            if _TRIAL in attributes:
                try:
                    found.append(from_plain(Trial, json.loads(attributes[_TRIAL])))
                except ValueError as error:
                    raise RecipeError(
                        f"another version of shrink wrote trial {one.number} of the journal: "
                        f"{error}",
                        subject=self._study.study_name,
                        hint="begin anew with --force, or name another --output or --storage",
                    ) from error
            elif one.state.is_finished() and _RECIPE in attributes:
                settings = json.loads(attributes[_SETTINGS])
                stopped = Trial(
                    number=one.number,
                    settings=settings,
                    figures={},
                    feasible=False,
                    status="stopped",
                )
                found.append(stopped)
        return sorted(found, key=lambda one: one.number)

    def recipes(self) -> frozenset[str]:
        """Return the recipes of the trials that have ended or run; not of those stopped."""
        return frozenset(
            str(one.user_attrs[_RECIPE])
            for one in self._frozen()
            if _RECIPE in one.user_attrs
            and (_TRIAL in one.user_attrs or not one.state.is_finished())
        )

    def running(self) -> list[Settings]:
        """Return the settings of the trials that workers train now."""
        return [
            json.loads(one.user_attrs[_SETTINGS])
            for one in self._frozen()
            if not one.state.is_finished()
            and {_RECIPE, _TRIAL} & one.user_attrs.keys() == {_RECIPE}
        ]

    def count(self) -> int:
        """Return the number of all trials, those that wait too."""
        return len(self._frozen())

    def _frozen(self) -> list[optuna.trial.FrozenTrial]:
        return self._study.get_trials(deepcopy=False)


def open_journal(place: Path) -> optuna.storages.BaseStorage:
    """Return the storage in a journal file, which is made where there is none.

    Raises:
        ResourceError: Optuna cannot be imported, or the file cannot be opened.
    """
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise ResourceError(
            "Optuna cannot be imported",
            subject="shrink search",
            hint=f"python -m pip install --upgrade {DISTRIBUTION}",
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    files.make_folder(place.parent)
    try:
        return optuna.storages.JournalStorage(JournalFileBackend(str(place)))
    except Exception as error:
        raise ResourceError(
            f"the journal cannot be opened: {error}",
            subject=place,
            hint="name a file on a shared disk with --storage, or begin anew with --force",
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress Optuna's warnings about experimental features."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _unless_ended() -> Iterator[None]:
    """Ignore Optuna's errors about a trial that another worker has given up."""
    from optuna.exceptions import UpdateFinishedTrialError

    try:
        with _quiet():
            yield
    except UpdateFinishedTrialError:
        pass
    except ValueError as error:  # as Study.tell says it
        if not str(error).startswith("Cannot tell a "):
            raise


def tpe_sampler(seed: int) -> optuna.samplers.BaseSampler:
    """Return Optuna's TPE, which the limits of a search constrain."""
    import optuna

    def constraints(trial: optuna.trial.FrozenTrial) -> Sequence[float]:
        found: Sequence[float] = trial.user_attrs.get(_CONSTRAINTS, [0.0])
        return found

    with _quiet():
        return optuna.samplers.TPESampler(
            seed=seed,
            multivariate=True,
            group=True,
            constant_liar=True,
            n_startup_trials=3,
            constraints_func=constraints,
            warn_independent_sampling=False,
        )
