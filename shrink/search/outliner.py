"""Asks a worker what models would be, untrained: one process for all questions of a search."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from shrink.base import files
from shrink.base.child import Child
from shrink.base.foreign import JsonObject
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.job import ANSWER, BEGUN, OF_STEP, QUESTION, Outline, OutlineJob, StepJob
from shrink.contract.model_source import ModelKind, ModelSource, Trust
from shrink.recipe.plan import Plan, Source
from shrink.run.judged import ARTIFACT, made_before
from shrink.run.process import start_worker
from shrink.run.steps import step_job
from shrink.run.store import Store
from shrink.search.keyed import Keyed, Keys

_NOW, _LATER = "a", "b"
"""What questions begin with: those that somebody waits for are answered first."""
_MOST_AHEAD = 4
"""Questions that nobody waits for, at a time."""
_POLL_S = 0.05
_MOST_S = 300.0
_ENDED = "the process that says it has ended"


class Outliner:
    """A worker that says what plans would give, started by the first question.

    A context: the worker ends with it.

    Args:
        store: of finished steps, from which chains begin where they can.
        trust_model: whether model files are loaded whatever they hold.

    Attributes:
        works_ahead: whether it goes on while points are trained, and lets them go first.
    """

    def __init__(self, store: Store, trust_model: bool = False) -> None:
        self._store, self._trust_model = store, trust_model
        self.works_ahead = False
        self._keyed = Keyed(store)
        self._held = contextlib.ExitStack()
        self._child: Child | None = None
        self._folder = Path()
        self._asked = 0
        self._known: dict[str, Outline] = {}
        self._expected: dict[str, str] = {}

    def __enter__(self) -> Outliner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held.close()
        self._child = None
        self._expected.clear()

    def outline(self, plan: Plan) -> Outline:
        """Return what the last step of a plan would be, untrained.

        What cannot be said has no figures, and an error that says why.
        """
        keys, last = self._keyed.keys(plan), plan.finals[-1]
        key = keys.of_steps[last]
        if key not in self._known:
            early = self._expected.pop(key, None)
            found = None if early is None else self._answer(self._moved_up(early))
            # What was worked out ahead is lost with its process, whatever that has died of.
            found = found or self._answer(self._ask(self._jobs(plan, last, keys)))
            self._known[key] = found or Outline(figures={}, error=_ENDED)
        return self._known[key]

    def expect(self, plan: Plan) -> None:
        """Have worked out what will probably be asked for, while something else goes on.

        Not where there is enough to work out already.
        """
        self.start()
        if sum(not self._place(one).exists() for one in self._expected.values()) >= _MOST_AHEAD:
            return
        keys, last = self._keyed.keys(plan), plan.finals[-1]
        key = keys.of_steps[last]
        if key not in self._known and key not in self._expected:
            self._expected[key] = self._ask(self._jobs(plan, last, keys), _LATER)

    def start(self) -> None:
        """Start the process, if none lives."""
        if self._child is not None and self._child.ended():
            self.__exit__(None, None, None)
        if self._child is not None:
            return
        self._held = contextlib.ExitStack()
        self._folder = self._held.enter_context(self._store.work_folder())
        log = self._held.enter_context(files.open_to_append(self._folder / "worker.log"))
        job = OutlineJob(
            name="search", work=self._folder, folder=self._folder, behind=self.works_ahead
        )
        self._child = self._held.enter_context(start_worker(job, self._folder, log.fileno()))

    def _jobs(self, plan: Plan, last: str, keys: Keys) -> list[StepJob]:
        """Return the steps that lead to the last one, from what the store has of them."""
        trust = Trust(plan.custom_objects, self._trust_model)
        jobs: list[StepJob] = []
        needed = [last]
        for step in reversed(plan.steps):
            if step.name not in needed:
                continue
            given = self._source(step.inputs["model"], keys.of_steps, trust)
            needed += [str(given.path)] if given.function == OF_STEP else []
            inputs = {"model": given}
            key = keys.of_steps[step.name]
            job = step_job(plan, step, (), inputs, keys.splits, self._store, key)
            jobs.append(replace(job, checkpoints=None))
        jobs.reverse()
        return jobs

    def _source(self, source: Source, keys: Mapping[str, str], trust: Trust) -> ModelSource:
        if source.step is None:
            assert source.reference is not None, "an input has a source"
            return source.reference.source(trust, source.arguments)
        made = made_before(keys[source.step], self._store)
        if made is None:
            arguments = dict(source.arguments)
            return ModelSource("keras", Path(source.step), OF_STEP, arguments, trust)
        path = made.files[ARTIFACT]
        kind: ModelKind = "tflite" if path.suffix == ".tflite" else "keras"
        return ModelSource(kind, path, None, dict(source.arguments), trust)

    def _ask(self, jobs: list[StepJob], when: str = _NOW) -> str:
        """Ask a question, and return its name."""
        self.start()
        name = f"{when}{self._asked:06d}"
        self._asked += 1
        question: JsonObject = {"steps": [to_plain(job) for job in jobs]}
        files.write_json(self._folder / f"{name}{QUESTION}", question)
        return name

    def _moved_up(self, name: str) -> str:
        """Return the name of a question that somebody waits for now, which may have begun."""
        first = _NOW + name.removeprefix(_LATER)
        try:
            (self._folder / f"{name}{QUESTION}").rename(self._folder / f"{first}{QUESTION}")
        except FileNotFoundError:
            return name
        return first

    def _place(self, name: str) -> Path:
        return self._folder / f"{name}{ANSWER}"

    def _answer(self, name: str) -> Outline | None:
        """Wait for the answer to a question; None where the process has ended, or takes too long.

        What is being worked out when it is asked goes on before it, for as long again at the most.
        """
        answer, begun = self._place(name), self._folder / f"{name}{BEGUN}"
        since, has_begun = time.monotonic(), False
        while not answer.exists():
            if not has_begun and begun.exists():
                since, has_begun = time.monotonic(), True
            is_late = time.monotonic() > since + _MOST_S
            if self._child is None or self._child.ended() or is_late:
                self.__exit__(None, None, None)
                return None
            time.sleep(_POLL_S)
        return from_plain(Outline, json.loads(answer.read_text(encoding="utf-8")))
