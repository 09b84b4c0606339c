"""The trials of a search, in a journal file that its workers share.

The file is replaced as a whole under a lock, so that a kill loses no trial. Another lock has one
worker at a time choose a trial, so that no two train the same recipe. A trial that runs while its
search's folder is free, or for much longer than any other took, belongs to a worker that died: it
is marked as stopped, and its settings wait for the next worker. If it
ends after all, its result counts.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shrink.base import files
from shrink.base.errors import RecipeError
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.search import Trial
from shrink.search.space import Settings

_ANEW = (
    "start over with another --output, or with --force, which keeps a --storage file: name "
    "another one, or delete it"
)
_DEAD_AFTER_S, _DEAD_AFTER = 3600.0, 4.0
"""A trial is given up after this many seconds, and this many times the longest one's duration."""


@dataclass
class StartedTrial:
    """A trial that has begun.

    Attributes:
        settings: of the trial.
        recipe: hash of its recipe; None where the settings give none.
        owner: which folder's search the worker belongs to.
        started: when, in seconds since 1970.
        ended: what became of it; None while it runs.
    """

    settings: Settings
    recipe: str | None
    owner: str
    started: float
    ended: Trial | None = None


@dataclass
class Journal:
    """All trials of a search.

    Attributes:
        identity: of recipe, data, goal and space.
        waiting: settings to be tried next.
        entries: the trials by number.
    """

    identity: str
    waiting: list[Settings] = field(default_factory=list)
    entries: list[StartedTrial] = field(default_factory=list)

    @property
    def trials(self) -> list[Trial]:
        """The trials of all workers that have ended."""
        return [one.ended for one in self.entries if one.ended is not None]

    @property
    def recipes(self) -> frozenset[str]:
        """The recipes of the trials that have ended or run; not of those stopped."""
        return frozenset(
            one.recipe
            for one in self.entries
            if one.recipe is not None and (one.ended is None or one.ended.status != "stopped")
        )

    @property
    def running(self) -> list[Settings]:
        """The settings of the trials that workers train now."""
        return [one.settings for one in self.entries if one.ended is None]


def read_journal(path: Path) -> Journal:
    """Return the journal in a file.

    Raises:
        ResourceError: it cannot be read.
        RecipeError: it is none of this version of shrink.
    """
    with files.typed_errors(path):
        content = path.read_bytes()
    try:
        return from_plain(Journal, json.loads(content))
    except ValueError as error:
        raise RecipeError(
            f"not a journal of this version of shrink: {error}",
            subject=path,
            hint=_ANEW,
        ) from error


class Trials:
    """The trials of a search, on disk.

    Args:
        path: of the journal; it is made where there is none.
        identity: of recipe, data, goal and space.
        owner: which folder's search this worker belongs to.

    Raises:
        ResourceError, RecipeError: see `read_journal`; or it is the journal of another search.
    """

    def __init__(self, path: Path, identity: str, owner: str) -> None:
        self._path, self._owner = path, owner
        self._choosing, self._writing = (
            path.with_name(f".{path.name}.{what}.lock") for what in ("choosing", "writing")
        )
        files.make_folder(path.parent)
        with files.locked(self._writing):  # locks of folders may not reach other machines
            files.remove_leftovers(path.parent)
            if not path.exists():
                files.write_json(path, to_plain(Journal(identity)))
        if self.read().identity != identity:
            raise RecipeError(
                "the journal holds a search of another recipe, space, or limits",
                subject=path,
                hint=_ANEW,
            )

    def choosing(self) -> contextlib.AbstractContextManager[None]:
        """Keep other workers from choosing a trial; workers that have a trial can still end it."""
        return files.locked(self._choosing)

    def read(self) -> Journal:
        """Return the journal as it is now; it is not replaced while it is read."""
        with files.locked(self._writing):
            return read_journal(self._path)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Journal]:
        with files.locked(self._writing):
            journal = read_journal(self._path)
            yield journal
            files.write_json(self._path, to_plain(journal))

    def begin(self, first: Sequence[Settings]) -> None:
        """Have these settings tried before others, unless the search has begun already."""
        with self._changing() as journal:
            if not journal.entries and not journal.waiting:
                journal.waiting = list(first)

    def start(self, settings: Settings, recipe: str | None) -> int | None:
        """Begin a trial, which waits no longer.

        Args:
            settings: of the trial.
            recipe: hash of its recipe; None where the settings give none.

        Returns:
            its number; None where another trial has the same recipe.
        """
        with self._changing() as journal:
            journal.waiting = [one for one in journal.waiting if one != settings]
            if recipe in journal.recipes:
                return None
            journal.entries.append(StartedTrial(settings, recipe, self._owner, time.time()))
            return len(journal.entries) - 1

    def end(self, trial: Trial) -> None:
        """Record how a trial ended, also one that another worker has given up."""
        with self._changing() as journal:
            entry = journal.entries[trial.number]
            if entry.ended is None or entry.ended.status == "stopped":
                entry.ended = trial
                journal.waiting = [one for one in journal.waiting if one != entry.settings]

    def stop_dead(self, mine: bool = False) -> None:
        """Mark the trials of workers that died as stopped; their settings wait.

        Args:
            mine: whether no worker of this search's folder is alive, so that all its trials are.
        """
        with self._changing() as journal:
            longest = max((one.duration_s or 0.0 for one in journal.trials), default=0.0)
            limit = max(_DEAD_AFTER_S, _DEAD_AFTER * longest)
            for number, one in enumerate(journal.entries):
                is_dead = mine and one.owner == self._owner
                if one.ended is None and (is_dead or time.time() - one.started > limit):
                    one.ended = Trial(
                        number=number,
                        settings=one.settings,
                        figures={},
                        feasible=False,
                        status="stopped",
                    )
                    journal.waiting.append(one.settings)
