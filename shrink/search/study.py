"""What several workers share of a search: an Optuna study, in a journal file or a database.

Each point is asked for, looked at, and told, by whoever asked for it. A worker says now and then
that it lives; the trials of one that no longer does are given to others, with the same settings.
Optuna itself is imported when a search begins: it costs a second.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shrink.base.errors import RecipeError
from shrink.base.foreign import Json, JsonObject
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.searched import Rung, Trial
from shrink.search.goal import Goal, cost_of
from shrink.search.liveness import is_dead, name_of_this_worker
from shrink.search.rungs import Reached
from shrink.search.space import Settings, Space

if TYPE_CHECKING:
    import optuna

_TRIAL, _LEFT = "shrink:trial", "shrink:left"
_SETTINGS, _WORKER, _BEAT = "shrink:settings", "worker", "beat"
_RUNGS, _UNBEGUN = "shrink:rungs", "shrink:unbegun"
_CONSTRAINTS, _RECIPE = "shrink:constraints", "shrink:recipe"
_UNDECIDED_S, _POLL_S = 5.0, 0.02
"""For which a worker that was asked first is waited for: it takes milliseconds, if it lives."""
_DRAWS = 100
_STEPS = 1000
"""Of a whole training, in which Optuna is told how far one has come."""
_FAR = 1e12
"""Stands for a figure that is not there, in what the sampler is told."""


@dataclass(frozen=True)
class Asked:
    """A point that this worker is to look at."""

    number: int
    settings: dict[str, Json]
    trial: optuna.Trial


class Study:
    """A search's points, shared by its workers.

    Args:
        storage: from `open_storage`.
        name: the same for all workers.
        goal: what is looked for.
        space: what is varied.
        sampler: of `SAMPLERS`; of gp, which a `Proposer` is, what is asked here comes by tpe.
        seed: of the sampler.
        identity: of recipe, data, goal and space: workers of another search are refused.

    Raises:
        RecipeError: the storage holds a search of this name for something else.
    """

    def __init__(
        self,
        storage: optuna.storages.BaseStorage,
        name: str,
        goal: Goal,
        space: Space,
        sampler: str,
        seed: int,
        identity: str,
    ) -> None:
        import optuna

        self.goal, self.space = goal, space
        self.worker = name_of_this_worker()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study = optuna.create_study(
                study_name=name,
                storage=storage,
                load_if_exists=True,
                directions=["minimize"] * len(goal.directed),
                sampler=_sampler(sampler, seed),
            )
        known = self._study.user_attrs.get("identity")
        if known is not None and known != identity:
            raise RecipeError(
                "the storage holds a search of this name for another recipe, space, or limits",
                subject=name,
                hint="choose another --output or --storage, or begin anew with --force",
            )
        if known is None:
            self._study.set_user_attr("identity", identity)

    def begin(self, first: Sequence[Mapping[str, Json]]) -> None:
        """Have these points looked at before any other, if nobody has asked for it yet."""
        if self._study.user_attrs.get("begun"):
            return
        self._study.set_user_attr("begun", self.worker)
        for settings in first:
            self._enqueue(settings)

    def _enqueue(self, settings: Mapping[str, Json]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study.enqueue_trial(
                dict(self.space.encode(settings)), {_SETTINGS: json.dumps(dict(settings))}
            )

    def propose(self, is_new: Callable[[Settings], bool]) -> bool:
        """Have a point at random that is new looked at next; whether one was found.

        For samplers that come back to what they know, though not all has been looked at.
        """
        for settings in itertools.islice(self.draw(self.asked()), _DRAWS):
            if is_new(settings):
                self._enqueue(settings)
                return True
        return False

    def draw(self, seed: int) -> Iterator[Settings]:
        """Yield points at random, without end."""
        import optuna

        draws = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
        while True:
            yield self.space.suggest(draws.ask())

    def seen(self) -> frozenset[str]:
        """Return the recipes of all points that were asked for; see `is_known`."""
        said = (one.user_attrs.get(_RECIPE) for one in self._frozen())
        return frozenset(filter(None, said))

    def running_points(self) -> list[Settings]:
        """Return the settings of the points that other workers look at now."""
        return [
            json.loads(one.user_attrs[_SETTINGS])
            for one in self._frozen()
            if not one.state.is_finished()
            and one.user_attrs.get(_WORKER, self.worker) != self.worker
            and _SETTINGS in one.user_attrs
            and _TRIAL not in one.user_attrs
        ]

    def asked(self) -> int:
        """Return how many points were asked for, or wait, by all workers."""
        return len(self._study.get_trials(deepcopy=False))

    def ask_if_none_waits(self, choose: Callable[[], Settings | None]) -> Asked:
        """Return the next point: one that waits, else what is chosen, else the sampler's."""
        from optuna.trial import TrialState

        self.take_over()
        waits = any(one.state == TrialState.WAITING for one in self._frozen())
        chosen = None if waits else choose()
        if chosen is not None:
            self._enqueue(chosen)
        return self.ask()

    def has_seen(self, recipe: str) -> bool:
        """Whether a point of this recipe was ever asked for; see `is_known`."""
        return any(one.user_attrs.get(_RECIPE) == recipe for one in self._frozen())

    def ask(self) -> Asked:
        """Return the next point, which no other worker is given."""
        self.take_over()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._study.ask()
            settings = self.space.suggest(trial)
        given = trial.user_attrs.get(_SETTINGS)
        if given:
            settings = json.loads(given)
        trial.set_user_attr(_SETTINGS, json.dumps(settings))
        trial.set_user_attr(_WORKER, self.worker)
        trial.set_user_attr(_BEAT, time.time())
        return Asked(trial.number, settings, trial)

    def change(self, asked: Asked, settings: Settings) -> Asked:
        """Return a point with other settings than those that it was asked with."""
        if settings == asked.settings:
            return asked
        asked.trial.set_user_attr(_SETTINGS, json.dumps(dict(settings)))
        return replace(asked, settings=dict(settings))

    def beat(self, asked: Asked) -> None:
        """Say that this worker lives."""
        asked.trial.set_user_attr(_BEAT, time.time())

    def tell(self, asked: Asked, trial: Trial, excesses: Mapping[str, float]) -> None:
        """Say what became of a point.

        Args:
            asked: the point.
            trial: what is known of it.
            excesses: by limit, how far it is broken; at most 0 where it holds.
        """
        from optuna.trial import TrialState

        with _unless_taken(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            asked.trial.set_user_attr(_TRIAL, json.dumps(to_plain(trial)))
            asked.trial.set_user_attr(_CONSTRAINTS, list(excesses.values()) or [0.0])
            if trial.status == "done":
                self._study.tell(asked.trial, self._costs(trial))
            elif trial.run is None:
                self._study.tell(asked.trial, state=TrialState.PRUNED)
            else:
                self._study.tell(asked.trial, state=TrialState.FAIL)

    def reach(self, asked: Asked, rungs: Sequence[Rung]) -> None:
        """Say what a point has come to on the rungs that it has reached."""
        last = rungs[-1]
        with _unless_taken():
            asked.trial.set_user_attr(_RUNGS, json.dumps([to_plain(one) for one in rungs]))
            if len(self.goal.directed) == 1:  # Optuna has no such reports of several objectives
                first = self.goal.ranking[0]
                cost = min(cost_of(first, last.figures.get(first)), _FAR)
                asked.trial.report(cost, round(_STEPS * last.share))

    def reached(self, share: float) -> list[Reached]:
        """Return the points that have reached a rung, those that others look at now, too.

        One that was given back is none: it will reach the rung again, as another.
        """
        found = []
        for one in self._frozen():
            if one.state.is_finished() and _TRIAL not in one.user_attrs:
                continue
            for value in json.loads(one.user_attrs.get(_RUNGS, "[]")):
                rung = from_plain(Rung, value)
                if math.isclose(rung.share, share):
                    found.append(Reached(one.number, rung.figures))
        return found

    def decline(self, asked: Asked) -> None:
        """Leave a point that was not begun to whoever asks next; `left` does not tell of it."""
        with _unless_taken():
            asked.trial.set_user_attr(_UNBEGUN, True)
        self.give_back(asked)

    def give_back(self, asked: Asked) -> None:
        """Leave a point that was not finished to whoever asks next."""
        from optuna.trial import TrialState

        with _unless_taken():
            self._study.tell(asked.trial, state=TrialState.FAIL)
            self._enqueue(asked.settings)

    def leave(self, asked: Asked, trial: Trial) -> None:
        """Say why a point was not looked at further: it decides nothing, and is not known by it."""
        from optuna.trial import TrialState

        with _unless_taken():
            asked.trial.set_user_attr(_LEFT, json.dumps(to_plain(trial)))
            self._study.tell(asked.trial, state=TrialState.FAIL)

    def _costs(self, trial: Trial) -> list[float]:
        costs = []
        for name, cost in zip(self.goal.ranking, self.goal.key(trial.figures), strict=False):
            if name in self.goal.directed:
                costs.append(min(cost, _FAR))
        return costs

    def trials(self) -> list[Trial]:
        """Return what is known of every point that was looked at, by all workers."""
        said = (one.user_attrs.get(_TRIAL) for one in self._frozen())
        return sorted(map(_read, filter(None, said)), key=lambda one: one.number)

    def left(self) -> list[Trial]:
        """Return the points that were not looked at to their end, by all workers."""
        found = []
        for one in self._frozen():
            said = one.user_attrs
            if not one.state.is_finished() or _SETTINGS not in said:
                continue
            if {_TRIAL, _UNBEGUN} & said.keys():
                continue
            if _LEFT in said:
                found.append(_read(said[_LEFT]))
            else:  # by a worker that was ended, or has died
                settings = json.loads(said[_SETTINGS])
                stopped = Trial(
                    number=one.number,
                    settings=settings,
                    figures={},
                    feasible=False,
                    status="stopped",
                )
                found.append(stopped)
        return found

    def is_known(self, asked: Asked, recipe: str) -> bool:
        """Whether an earlier trial is, or was, of the same recipe.

        Waits until others that were asked for earlier have said what they are of, so that of two
        workers at the same moment one looks at it, and not both.

        Args:
            asked: the point.
            recipe: a hash of what it stands for: other settings may mean the same.
        """
        asked.trial.set_user_attr(_RECIPE, recipe)
        ends = time.monotonic() + _UNDECIDED_S
        while self._is_undecided_before(asked) and time.monotonic() < ends:
            time.sleep(_POLL_S)
        return any(
            one.number < asked.number
            and one.user_attrs.get(_RECIPE) == recipe
            and (one.user_attrs.get(_TRIAL) or not one.state.is_finished())
            for one in self._frozen()
        )

    def _is_undecided_before(self, asked: Asked) -> bool:
        """Whether a worker has not said yet which recipe an earlier point of its stands for."""
        from optuna.trial import TrialState

        return any(
            one.number < asked.number
            and one.state == TrialState.RUNNING
            and not {_RECIPE, _TRIAL, _LEFT} & one.user_attrs.keys()
            for one in self._frozen()
        )

    def running(self, before: Asked | None = None) -> int:
        """Return how many points workers look at now; one that `trials` has is none.

        Args:
            before: count only those that were asked for before this one.
        """
        return sum(
            not one.state.is_finished()
            and _WORKER in one.user_attrs
            and _TRIAL not in one.user_attrs
            and (before is None or one.number < before.number)
            for one in self._frozen()
        )

    def take_over(self) -> int:
        """Give the points of workers that no longer live to whoever asks next; return how many."""
        from optuna.trial import TrialState

        taken = 0
        for one in self._frozen():
            if one.state == TrialState.RUNNING and self._is_lost(one.user_attrs):
                try:
                    self._study.tell(one.number, state=TrialState.FAIL)
                except (ValueError, RuntimeError):  # another worker was first
                    continue
                self._enqueue(json.loads(one.user_attrs[_SETTINGS]))
                taken += 1
        return taken

    def _is_lost(self, said: Mapping[str, Json]) -> bool:
        worker = str(said.get(_WORKER, ""))
        if worker in ("", self.worker) or _SETTINGS not in said:
            return False
        return is_dead(worker, float(said.get(_BEAT, 0)))

    def _frozen(self) -> Iterator[optuna.trial.FrozenTrial]:
        yield from self._study.get_trials(deepcopy=False)


@contextlib.contextmanager
def _unless_taken() -> Iterator[None]:
    """Leave out what is said of a point that others took over, as this worker was long silent.

    They look at it under another number, and one result is enough.
    """
    from optuna.exceptions import UpdateFinishedTrialError

    try:
        yield
    except UpdateFinishedTrialError:
        pass
    except ValueError as error:  # as Study.tell says it
        if not str(error).startswith("Cannot tell a "):
            raise


def _read(text: str) -> Trial:
    value: JsonObject = json.loads(text)
    return from_plain(Trial, value)


def _sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    import optuna

    def constraints(trial: optuna.trial.FrozenTrial) -> Sequence[float]:
        found: Sequence[float] = trial.user_attrs.get(_CONSTRAINTS, [0.0])
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        if name == "nsga2":
            return optuna.samplers.NSGAIISampler(
                seed=seed, population_size=16, constraints_func=constraints
            )
        return optuna.samplers.TPESampler(
            seed=seed,
            multivariate=True,
            group=True,
            constant_liar=True,
            n_startup_trials=8,
            constraints_func=constraints,
            warn_independent_sampling=False,
        )
