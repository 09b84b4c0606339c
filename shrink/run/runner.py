"""Runs a plan: each step from the cache or in a fresh worker, then the report."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrink.base.cache import key_of
from shrink.base.console import Console
from shrink.base.errors import (
    DataError,
    InternalError,
    Interrupted,
    ReportWarning,
    ResourceError,
    ShrinkError,
    Terminated,
    listed,
)
from shrink.base.measurement import Note
from shrink.base.progress import Progress
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.events import Event
from shrink.contract.examples import SPLITS
from shrink.contract.job import CheckModelsJob, Made, MeasuredOn, StepJob
from shrink.contract.model_source import ModelSource, Trust
from shrink.contract.report import Failure, Status
from shrink.contract.result import (
    StageOutcome,
    StepDone,
    StepResult,
    scores_from_plain,
)
from shrink.data.config import source_of
from shrink.data.fingerprint import fingerprint
from shrink.model.reference import ModelReference
from shrink.model.user_reads import changed_contents, holding_contents
from shrink.recipe.plan import BASELINE, Plan, Source, Step
from shrink.recipe.resolution import with_taken_task
from shrink.run.folder import RunFolder, tasks_of
from shrink.run.host_plan import check_host, left_of_group
from shrink.run.keys import (
    describe_steps,
    runs_code,
    step_keys,
)
from shrink.run.lineage import (
    Lineage,
    Splits,
    chain_of,
    describe_data,
    describe_shared,
    describe_splits,
    remember,
    splits_of,
)
from shrink.run.options import RunOptions, RunResult
from shrink.run.preview import PreviewRow, keep_duration, preview_plan
from shrink.run.process import LOG_NAME, attempt, log_to_keep, run_worker, show_event
from shrink.run.steps import (
    check_step_names,
    selected_steps,
    step_job,
)
from shrink.run.store import Store, StoredStep
from shrink.run.stored_step import entry_key, made_before, measured_on
from shrink.run.supervisor import (
    Attempt,
    keep_log,
    planned_job,
    run_recovering,
    with_log,
    with_names_of_the_user,
)

ARTIFACT, SCORES = "artifact", "scores"
_CHECKED: list[ModelSource] = []
"""Models that earlier runs of this process have loaded, as those of a sweep or a search."""


@dataclass
class _State:
    data_fingerprint: str
    splits: Splits
    keys: Mapping[str, str]
    stored: dict[str, StoredStep] = field(default_factory=dict)
    outcomes: list[StageOutcome] = field(default_factory=list)
    error: ShrinkError | None = None
    group_bytes: int | None = None


class Runner:
    """Runs the steps of a plan in order.

    Args:
        plan: what to run.
        options: where, and what to take from the store.
        store: where finished steps are.
        console: where progress and warnings are printed.

    Attributes:
        attempt: runs a job in a worker process, once.
        workers: machines that train together.
        exit_code: of the last run.
        warnings: about the run as a whole, for the report.
    """

    def __init__(self, plan: Plan, options: RunOptions, store: Store, console: Console) -> None:
        self.plan = plan
        self.options = options
        self.store = store
        self.console = console
        self.attempt: Attempt = attempt
        self.workers = 1
        self.exit_code = 0
        self.warnings: list[ReportWarning] = []
        self.steps = selected_steps(plan, options.last)
        check_step_names(plan, options.first, options.last)

    def run(self) -> RunResult:
        """Run every step, write the run folder, and return the report.

        Raises:
            ShrinkError: the run could not begin. What goes wrong later is in the result.
        """
        self.store.sweep()
        name = "run-" + hashlib.sha256(os.fsencode(self.options.output.resolve())).hexdigest()
        busy = f"another run is writing to {self.options.output}; waiting for it"
        locked = self.store.lock(name, lambda: self.console.say(busy))
        with self.store.in_use(), locked, holding_contents():
            state = _State(*self._keys())
            self.plan.check_installed()
            new = [s for s in self.steps if not self._is_stored(s, state)]
            if new:  # what is stored was computed from the same data
                source_of(self.plan.recipe.data.source).check(self.plan.recipe.data)
            state.group_bytes = left_of_group()
            check_host(self.plan, new, state.group_bytes)
            self._check_models(new)
            options = self.options
            folder = RunFolder(options.output, self.plan, options.force, options.trust_model)
            for step in self.steps:
                self._run_step(step, state, folder)
            described = describe_steps(self.plan, state.data_fingerprint, state.splits)
            # What was not computed must not look to the next preview as if it had been.
            described = {name: described[name] for name in state.stored}
            folder.add_plan(described)
            return self._finish(state, folder)

    def _check_models(self, new: Sequence[Step]) -> None:
        """Load the models that all but the first of the steps to come name, in a worker.

        Raises:
            ModelError: a file is refused, or a function raises or returns no usable model.
        """
        trust = Trust(self.plan.custom_objects, self.options.trust_model)
        loaded = {source.reference for source in new[0].inputs.values()} if new else set()
        models: dict[bool, list[ModelSource]] = {False: [], True: []}
        for step in new[1:]:
            for role, source in step.inputs.items():
                reference = source.reference
                if reference is None or reference.kind == "tflite" or reference in loaded:
                    continue
                loaded.add(reference)
                if (named := reference.source(trust, source.arguments)) not in _CHECKED:
                    models[role.startswith("teacher")].append(named)
        if not any(models.values()):
            return
        later, teachers = tuple(models[False]), tuple(models[True])
        job = CheckModelsJob(name="models", models=later, teachers=teachers)
        with self.store.work_folder() as work:
            run_worker(job, work, lambda event: show_event(event, self.console))
        _CHECKED.extend([*later, *teachers])

    def preview(self) -> list[PreviewRow]:
        """Return what a run would do with each step, and why."""
        steps, folder = self.steps, self.options.output
        return preview_plan(self.plan, steps, folder, self.store, lambda s: not self._may_reuse(s))

    def keys(self) -> Mapping[str, str]:
        """Return the key of every step, by which the store knows it."""
        return self._keys()[2]

    def _keys(self, data_fingerprint: str | None = None) -> tuple[str, Splits, dict[str, str]]:
        """Return the data's fingerprint, how it is divided, and the key of every step."""
        digest = data_fingerprint or fingerprint(self.plan.recipe.data)
        splits = splits_of(self.plan, digest, self.store)
        return digest, splits, step_keys(self.plan, digest, splits)

    def _learn_keys(self, state: _State) -> None:
        """Take the keys anew where the user's code has run, which shows what it imports and reads.

        The next run knows it from the start: a step is stored under the key that is found then.
        """
        if runs_code(self.plan):
            files_only = self.plan.recipe.data.source != "python"  # looked through once a run
            known = state.data_fingerprint if files_only else None
            state.data_fingerprint, state.splits, state.keys = self._keys(known)

    def _run_step(self, step: Step, state: _State, folder: RunFolder) -> None:
        """Bring one step to its outcome; after a failure the others are skipped."""
        outcome = StageOutcome(step.name, step.kind, "skipped", previous=step.previous)
        if state.error is not None:
            state.outcomes.append(outcome)
            return
        started = time.perf_counter()
        position = (step.name, step.index + 1, len(self.steps))
        try:
            stored, status = self._obtain(step, state, folder, position)
        except ShrinkError as error:
            stopped = isinstance(error, Interrupted | Terminated)
            self.console.stage_ended(*position, "stopped" if stopped else "failed")
            state.error = error
            seconds = time.perf_counter() - started
            failure = from_plain(Failure, error.to_dict())
            failed = replace(outcome, status="failed", duration_s=seconds, error=failure)
            state.outcomes.append(failed)
            return
        state.stored[step.name] = stored
        lineage = self._lineage(step, stored, state)
        seconds = stored.result.duration_s or 0.0
        if status == "done":
            keep_duration(step, seconds, self.store)
        self.console.stage_ended(*position, describe_end(status, seconds))
        artifact, digest = folder.add(step, stored.files)
        if lineage is not None:
            made = (one.files.get(SPLITS) for one in state.stored.values())
            known = {one.stem: one for one in made if one is not None}
            folder.add_lineage(digest, lineage, {**state.splits.files, **known})
        scores = scores_from_plain(json.loads(stored.files[SCORES].read_text(encoding="utf-8")))
        state.outcomes.append(
            replace(
                outcome,
                status=status,
                duration_s=seconds,
                artifact=artifact,
                sha256=digest,
                result=stored.result,
                scores=scores,
            )
        )

    def _lineage(self, step: Step, stored: StoredStep, state: _State) -> Lineage | None:
        """Remember where a step's artifact comes from, for runs that go on from it."""
        if self.options.measured_on != "test":  # a trial of a search
            return None
        data = describe_data(self.plan.recipe.data, state.data_fingerprint, stored.result)
        begins = state.stored.get(self.plan.baseline.name)
        return remember(self.plan, step, state.splits, data, stored, self.store, begins)

    def _obtain(
        self, step: Step, state: _State, folder: RunFolder, position: tuple[str, int, int]
    ) -> tuple[StoredStep, Status]:
        """Return the finished step and whether it was computed now (`done`) or `cached`."""
        if (found := self._find(step, state)) is not None:
            return found, "cached"
        key = state.keys[step.name]
        busy = f"another run is computing {step.name}; waiting for it"
        with self.store.lock(key, lambda: self.console.say(busy)):
            self._learn_keys(state)  # whoever held the lock may have run the same code
            if (found := self._find(step, state)) is not None:
                return found, "cached"
            self.console.stage_started(*position)
            return self._compute(step, state, folder)

    def _is_stored(self, step: Step, state: _State) -> bool:
        return self._may_reuse(step) and self.store.contains(self._entry(step, state))

    def _find(self, step: Step, state: _State) -> StoredStep | None:
        """Return a step that is in the cache."""
        key = self._entry(step, state)
        if self._may_reuse(step):
            return self.store.find(key)
        since = self.options.since
        found = self.store.find(key) if since is not None else None
        measured = found.result.measured if found is not None else None
        return found if measured and measured.at and measured.at >= str(since) else None

    def _measured(self, step: Step) -> MeasuredOn:
        return measured_on(self.options.measured_on, step, self.plan)

    def _entry(self, step: Step, state: _State) -> str:
        """Return the key under which the store has a step that is measured as this run does."""
        return entry_key(state.keys[step.name], self._measured(step), self.options.timed)

    def _may_reuse(self, step: Step) -> bool:
        first = self.options.first
        after = first is not None and step.index >= self.plan.step(first).index
        return self.options.use_store and not after

    def _compute(self, step: Step, state: _State, folder: RunFolder) -> tuple[StoredStep, Status]:
        """Compute a step; its artifact is cached where it was only measured otherwise before."""
        with self.store.work_folder() as work:
            started = time.perf_counter()
            begun = state.keys[step.name]
            known = {begun}
            if not self._may_reuse(step):
                self.store.remove_checkpoints(begun)
            events, warn = self._listener(step, state, known), self.console.warn
            try:
                job = self._job(step, state)
                if made := self._may_reuse(step) and made_before(begun, self.store):
                    earlier = Made(made.files[ARTIFACT], to_plain(made.result))
                    job = replace(job, action="measure", made=earlier)
                    plain = self.attempt(job, work, events)
                else:
                    job = planned_job(job, work, events, self.workers, state.group_bytes)
                    plain = run_recovering(job, work, events, warn, self.attempt)
            except ShrinkError as error:
                if (work / LOG_NAME).is_file():
                    error = with_log(error, self._keep_log(step, work / LOG_NAME, folder, begun))
                self._explain_classes(error)
                raise with_names_of_the_user(error, self._called(step, state)) from error
            done = from_plain(StepDone, plain)
            result = replace(done.result, duration_s=time.perf_counter() - started)
            produced = {role: work / name for role, name in done.files.items()}
            if made:  # its making and what it was trained on are reported as before
                result = replace(result, duration_s=made.result.duration_s)
                if SPLITS in made.files:
                    produced[SPLITS] = work / "splits.bin"
                    shutil.copyfile(made.files[SPLITS], produced[SPLITS])
            self._learn_keys(state)
            entry = self._entry(step, state)
            if changed := changed_contents():
                warning = ReportWarning(
                    "code-changed",
                    f"{changed[0]} was changed during the run, so that its stages may have used "
                    "either version: later runs do not reuse their results",
                    "run it again",
                )
                if all(known.code != warning.code for known in self.warnings):
                    self.warnings.append(warning)
                entry = key_of(entry, str(time.time_ns()))
            if (printed := work / LOG_NAME).is_file():
                produced["log"] = keep_log(printed, work / "kept.log")
            stored = self.store.add(entry, result, produced)
            for key in {state.keys[step.name], *known}:
                self.store.remove_checkpoints(key)
            return stored, "cached" if made else "done"

    def _explain_classes(self, error: ShrinkError) -> None:
        """Say where `data.classes` comes from, in an error about it that the recipe cannot tell."""
        inherited = self.plan.inherited
        taken = inherited is not None and "data.classes" in inherited.keys
        if taken and isinstance(error, DataError) and "data.classes" in error.message:
            labels = listed(self.plan.recipe.data.classes or (), 10)
            first = f"{error.hint}; " if error.hint else ""
            error.hint = (
                f"{first}data.classes comes from the model's record, whose outputs are {labels}; "
                "set data.classes to rename them, or train a new model for other classes"
            )

    def _keep_log(self, step: Step, source: Path, folder: RunFolder, key: str) -> Path | None:
        """Keep what the worker of a failed step printed, and return where; None for nowhere."""
        if (apart := self.options.failure_logs) is None:
            return folder.add_log(step, log_to_keep(source))
        try:
            return keep_log(source, apart / f"{step.name}-{key[:12]}.log")
        except (OSError, ResourceError) as error:
            self.console.warn(f"the log of {step.name} is not kept: {error}")
            return None

    def _called(self, step: Step, state: _State) -> dict[str, str]:
        """Return what the user calls the files in the store that a step reads, by their paths."""
        called = {}
        for name in filter(None, (source.step for source in step.inputs.values())):
            before = self.plan.step(name)
            given = before.inputs["model"].reference if before.kind == BASELINE else None
            path = state.stored[name].files[ARTIFACT]
            called[str(path)] = str(given or f"the model of stage {name}")
        return called

    def _listener(self, step: Step, state: _State, known: set[str]) -> Callable[[Event], None]:
        """Return what hears of a step's progress, and learns its keys once it trains.

        The user's code has run by then. A run that is killed later is gone on with under the key
        that the next one will find.

        Args:
            step: that is being computed.
            state: of the run.
            known: takes the keys under which checkpoints are to be found.
        """
        begun, learned = state.keys[step.name], False

        def listen(event: Event) -> None:
            nonlocal learned
            if isinstance(event, Progress) and not event.continued and not learned:
                learned = True
                self._learn_keys(state)
                self.store.alias_checkpoints(state.keys[step.name], begun)
                known.add(state.keys[step.name])
            show_event(event, self.console)

        return listen

    def _job(self, step: Step, state: _State) -> StepJob:
        """Return all that a worker needs to know."""
        trust = Trust(self.plan.custom_objects, self.options.trust_model)
        inputs = {role: _source(source, state, trust) for role, source in step.inputs.items()}
        later = self.steps[step.index + 1 :]
        key = state.keys[step.name]
        job = step_job(self.plan, step, later, inputs, state.splits, self.store, key)
        return replace(job, measured_on=self._measured(step), timed=self.options.timed)

    def _add_notes(self, state: _State) -> None:
        """Warn of, or note at the first finished stage, where test examples and keys come from."""
        texts: list[str | None] = []
        results = (stored.result.splits for stored in state.stored.values())
        held_out = next((splits for splits in results if splits.test is not None), None)
        if held_out is not None:
            warning, note = describe_splits(state.splits, held_out)
            copies, copies_note = describe_shared(held_out)
            self.warnings += [*([warning] if warning else []), *copies]
            texts += [note, copies_note]
        if (inherited := self.plan.inherited) is not None:
            self.warnings += inherited.warnings
            keys = ", ".join(inherited.keys)
            texts.append(keys and f"taken from the {inherited.of}'s record: {keys}")
        notes = [Note(text) for text in texts if text]
        first = next((outcome for outcome in state.outcomes if outcome.complete), None)
        if first is not None:
            result = replace(first.result, notes=(*first.result.notes, *notes))
            state.outcomes[state.outcomes.index(first)] = replace(first, result=result)

    def _keep_as_resolved(self, state: _State) -> None:
        """Let the resolved recipe find the steps, which names what this one left open.

        This recipe finds them too, where a later step showed that the user's code reads more.
        """
        named = with_taken_task(self.plan, tasks_of(state.outcomes))
        plans = [named] if named.recipe.task != self.plan.recipe.task else []
        plans += [self.plan] if runs_code(self.plan) else []
        for plan in plans:
            keys = step_keys(plan, state.data_fingerprint, state.splits)
            for name, stored in state.stored.items():
                if not self.store.contains(keys[name]):
                    with contextlib.suppress(OSError, ResourceError):  # then it is computed again
                        self.store.add(keys[name], stored.result, stored.files)

    def _finish(self, state: _State, folder: RunFolder) -> RunResult:
        finals = replace(self.plan, steps=self.steps).finals
        self._add_notes(state)
        chain = None
        counted = next((one.result for one in state.outcomes if one.complete), StepResult())
        data = describe_data(self.plan.recipe.data, state.data_fingerprint, counted)
        if self.options.measured_on == "test":
            chain = chain_of(self.plan, state.splits, data, self.store)
            if not changed_contents():
                self._keep_as_resolved(state)
        report = folder.write(state.outcomes, finals, self.warnings, chain, data)
        if state.error is not None:
            self.exit_code = state.error.exit_code
        else:
            self.exit_code = 0 if report.passed else 1
        if folder.path != self.options.output:
            self.console.say(
                f"{self.options.output} keeps its last finished run; this run is in {folder.path}"
            )
        if folder.replaced:
            first, *others = (f"{one.key} was {one.a}, is {one.b}" for one in folder.replaced)
            more = f", and {len(others)} more" if others else ""
            self.console.say(
                f"{folder.path} replaced an earlier run with other settings ({first}{more}); "
                "--output DIR would have kept it"
            )
        scores = {outcome.name: outcome.scores for outcome in state.outcomes}
        return RunResult(report, folder.path, self.exit_code, state.error, scores)


def describe_end(status: str, seconds: float) -> str:
    """Return how a step ended, for people."""
    return "cached" if status == "cached" else f"done in {seconds:.1f} s"


def _source(source: Source, state: _State, trust: Trust) -> ModelSource:
    reference = source.reference
    if source.step is not None:
        path = state.stored[source.step].files[ARTIFACT]
        reference = ModelReference("tflite" if path.suffix == ".tflite" else "keras", path)
    if reference is None:
        raise InternalError("a step has an input without a source")
    return reference.source(trust, source.arguments)
