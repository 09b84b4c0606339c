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
from shrink.contract.job import Outline, OutlineJob, StepJob
from shrink.contract.model_source import ModelKind, ModelSource, Trust
from shrink.recipe.plan import Plan, Source
from shrink.run.judged import ARTIFACT, made_before
from shrink.run.process import start_worker
from shrink.run.steps import step_job
from shrink.run.store import Store
from shrink.search.keyed import Keyed, Keys

_QUESTION, _ANSWER = ".question.json", ".answer.json"
_OF_STEP = "step"
_POLL_S = 0.05
_MOST_S = 300.0


class Outliner:
    """A worker that says what plans would give, started by the first question.

    A context: the worker ends with it.

    Args:
        store: of finished steps, from which chains begin where they can.
        trust_model: whether model files are loaded whatever they hold.
    """

    def __init__(self, store: Store, trust_model: bool = False) -> None:
        self._store, self._trust_model = store, trust_model
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
            asked = self._expected.pop(key, None) or self._ask(self._jobs(plan, last, keys))
            self._known[key] = self._answer(asked)
        return self._known[key]

    def expect(self, plan: Plan) -> None:
        """Have worked out what will probably be asked for, while something else goes on."""
        keys, last = self._keyed.keys(plan), plan.finals[-1]
        key = keys.of_steps[last]
        if key not in self._known and key not in self._expected:
            self._expected[key] = self._ask(self._jobs(plan, last, keys))

    def _jobs(self, plan: Plan, last: str, keys: Keys) -> list[StepJob]:
        """Return the steps that lead to the last one, from what the store has of them."""
        trust = Trust(plan.custom_objects, self._trust_model)
        jobs: list[StepJob] = []
        needed = [last]
        for step in reversed(plan.steps):
            if step.name not in needed:
                continue
            given = self._source(step.inputs["model"], keys.of_steps, trust)
            needed += [str(given.path)] if given.function == _OF_STEP else []
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
            return ModelSource("keras", Path(source.step), _OF_STEP, arguments, trust)
        path = made.files[ARTIFACT]
        kind: ModelKind = "tflite" if path.suffix == ".tflite" else "keras"
        return ModelSource(kind, path, None, dict(source.arguments), trust)

    def _ask(self, jobs: list[StepJob]) -> str:
        """Ask a question, and return its name."""
        if self._child is None:
            self._start()
        name = f"{self._asked:06d}"
        self._asked += 1
        question: JsonObject = {"steps": [to_plain(job) for job in jobs]}
        files.write_json(self._folder / f"{name}{_QUESTION}", question)
        return name

    def _answer(self, name: str) -> Outline:
        """Wait for the answer to a question."""
        answer, deadline = self._folder / f"{name}{_ANSWER}", time.monotonic() + _MOST_S
        while not answer.exists():
            if self._child is None or self._child.ended() or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                return Outline(figures={}, error="the process that says it has ended")
            time.sleep(_POLL_S)
        return from_plain(Outline, json.loads(answer.read_text(encoding="utf-8")))

    def _start(self) -> None:
        self._held = contextlib.ExitStack()
        self._folder = self._held.enter_context(self._store.work_folder())
        log = self._held.enter_context(files.open_to_append(self._folder / "worker.log"))
        job = OutlineJob(name="search", work=self._folder, folder=self._folder)
        self._child = self._held.enter_context(start_worker(job, self._folder, log.fileno()))
