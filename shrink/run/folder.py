"""A run folder: artifacts, the resolved recipe, and the report, which is written last."""

from __future__ import annotations

import platform
import re
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shrink.base import files
from shrink.base.cache import REPORT_NAME, RESOLVED_NAME
from shrink.base.errors import InputError, RecipeError, ReportWarning
from shrink.base.foreign import JsonObject
from shrink.base.host import machine
from shrink.base.packages import versions
from shrink.contract.codec import to_plain
from shrink.contract.comparison import COMPARE_NAME
from shrink.contract.details import Task
from shrink.contract.examples import SPLITS
from shrink.contract.report import Checkout, DataSet, Environment, RecipeName, Report
from shrink.contract.report_file import read_report
from shrink.contract.result import StageOutcome
from shrink.contract.usage import ARTIFACTS, VOCABULARY_NAME
from shrink.recipe.plan import Plan, Step
from shrink.recipe.recipe_diff import recipe_changes, settings_of
from shrink.recipe.resolution import recipe_sha256, resolved_recipe_text, with_taken_task
from shrink.report.comparison import COMPARE_NAMES
from shrink.report.diff import RecipeChange
from shrink.report.headline import Continuation
from shrink.report.model import build_report
from shrink.report.run_files import RENDERED, render
from shrink.run.commit import commit_of
from shrink.run.keys import StepDescriptions
from shrink.run.lineage import Lineage
from shrink.run.steps import PLAN_NAME

LOGS = "logs"
"""The folder of what the worker of each stage printed, while it made the artifact."""
_OURS = re.compile(
    rf"{ARTIFACTS}/\d\d+-.+\.(keras|tflite)(\.json)?|{LOGS}/\d\d+-.+\.log|{SPLITS}/.+\.bin"
)
"""Files that every run names by its stages."""
_NAMES = {REPORT_NAME, RESOLVED_NAME, PLAN_NAME, VOCABULARY_NAME, *RENDERED}


class RunFolder:
    """The folder that a run leaves behind, written when the run has ended.

    The report and the artifacts of a finished run stay as they are until another run has
    finished: what a failed run has to say goes into a folder beside this one.

    Args:
        path: the folder; created when missing.
        plan: what is run.
        force: take over the folder of another recipe's run.
        trust_model: whether the model files were loaded whatever they hold, for the report.

    Attributes:
        path: the folder; after `write` the one that was written.
        replaced: after `write`, in what the recipe of the run that stood here differed.

    Raises:
        RecipeError: the folder belongs to another recipe, or holds something else.
    """

    def __init__(self, path: Path, plan: Plan, force: bool, trust_model: bool = False) -> None:
        self.path = path
        self.replaced: tuple[RecipeChange, ...] = ()
        self._trust_model = trust_model
        self._plan = plan
        self._contents: dict[str, str | bytes | Path] = {}
        self._lineages: dict[str, JsonObject] = {}
        if path.is_file():
            raise RecipeError(
                "the output folder is a file, which --force does not overwrite",
                subject=path,
                hint="choose another folder with --output",
            )
        self._before = _read_report(path)
        self._may_clean = self._before is not None or not _holds_other_things(path)
        if not force:
            self._check_owner()
        for folder in (path, path / ARTIFACTS, path / LOGS):
            files.make_folder(folder)

    def add(self, step: Step, stored: Mapping[str, Path]) -> tuple[str, str]:
        """Have `write` copy a finished step's artifact, and what its worker printed.

        Args:
            step: of the plan.
            stored: the step's files by role.

        Returns:
            The artifact's path in this folder, and its SHA-256.
        """
        artifact = stored["artifact"]
        name = f"{ARTIFACTS}/{step.index:02d}-{step.name}{artifact.suffix}"
        self._contents[name] = artifact
        if "log" in stored:
            self._contents[_log_name(step)] = stored["log"]
        return name, files.sha256(artifact)

    def add_log(self, step: Step, content: bytes) -> Path:
        """Have `write` keep what the worker of a failed step printed; return where it will be."""
        self._contents[_log_name(step)] = content
        return self._target(finished=False) / _log_name(step)

    def add_lineage(self, sha256: str, lineage: Lineage, splits: Mapping[str, Path]) -> None:
        """Have `write` keep where an artifact comes from, and the splits that it was trained on.

        Args:
            sha256: of the artifact.
            lineage: of it.
            splits: files of splits by their SHA-256, as far as they are known.
        """
        self._lineages[sha256] = lineage.to_dict()
        for name in {link.splits for link in lineage.links} & splits.keys():
            self._contents[f"{SPLITS}/{name}.bin"] = splits[name]

    def add_plan(self, described: StepDescriptions) -> None:
        """Have `write` keep what each step depends on, for the next preview."""
        self._contents[PLAN_NAME] = files.json_text(described)

    def write(
        self,
        outcomes: Sequence[StageOutcome],
        finals: Sequence[str],
        warnings: Sequence[ReportWarning] = (),
        chain: Continuation | None = None,
        data: DataSet | None = None,
    ) -> Report:
        """Write what was added, the recipe and the report.

        Args:
            outcomes: of the steps.
            finals: names of the last steps.
            warnings: about the run as a whole.
            chain: what the run goes on from.
            data: what the report says of its data.

        Returns:
            The report.
        """
        target = self._target(all(outcome.complete for outcome in outcomes))
        if target != self.path:
            self.path, self._before = target, None
            self._may_clean = not _holds_other_things(target)
            files.make_folder(target)
        plan = with_taken_task(self._plan, tasks_of(outcomes))
        resolved = resolved_recipe_text(plan)
        run = Report(
            passed=True,
            recipe=RecipeName(name=self._plan.recipe.name, sha256=recipe_sha256(plan)),
            resolved_recipe=resolved,
            command=command_line(),
            trust_model=self._trust_model,
            baseline=self._plan.baseline.name,
            finals=tuple(finals),
            data=data,
            source=Checkout(commit=commit_of(self._plan.source.parent)),
            environment=environment(outcomes),
            stages=(),
            gates=(),
            warnings=tuple(warnings),
        )
        report = build_report(
            run,
            outcomes,
            self._plan.recipe.gates,
            saved=self._plan.saved,
            planned_finals=self._plan.finals,
            chain=chain,
            tests_all=plan.recipe.data.test_split == 1,
        )
        if self._before is not None:
            self.replaced = self._replaced(self._before, report)
        contents = {
            **self._contents,
            RESOLVED_NAME: resolved,
            **render(report, self._lineages),
            REPORT_NAME: files.json_text(to_plain(report)),
        }
        new = {name: one for name, one in contents.items() if not _is_copy(target / name, one)}
        files.write_together(target, new, before=lambda: self._make_way(contents.keys()))
        if _is_finished(report):
            self._remove_failed()
        return report

    def _replaced(self, before: Report, report: Report) -> tuple[RecipeChange, ...]:
        changes = recipe_changes(before, report)
        if not _is_finished(before):  # it may not have come to know what its task takes
            stated = settings_of(replace(report, resolved_recipe=resolved_recipe_text(self._plan)))
            changes = [
                one
                for one in changes
                if one.key in stated or not one.key.startswith("task.") or "-" not in (one.a, one.b)
            ]
        return tuple(changes)

    def _remove_failed(self) -> None:
        """Remove what an earlier failure of this run left beside it: it is over."""
        failed = failed_folder(self.path)
        report = _read_report(failed)
        if report is None or report.recipe.name != self._plan.recipe.name:
            return
        if not _is_finished(report) and not _holds_other_things(failed):
            shutil.rmtree(failed, ignore_errors=True)

    def _target(self, finished: bool) -> Path:
        """Return where the run goes: beside this folder if it failed, and another one has not."""
        if finished or self._before is None or not _is_finished(self._before):
            return self.path
        path = failed_folder(self.path)
        # Somebody's own folder: a report among it would not be found.
        return path.with_name(f"{path.name}-2") if _holds_other_things(path) else path

    def _make_way(self, kept: Collection[str]) -> None:
        """Remove the last report first, then files that this run does not have."""
        for name in (REPORT_NAME, *RENDERED, VOCABULARY_NAME):
            (self.path / name).unlink(missing_ok=True)
        for path in self.path.glob("*/*") if self._may_clean else ():
            name = f"{path.parent.name}/{path.name}"
            if _OURS.fullmatch(name) and name not in kept and path.is_file():
                path.unlink()

    def _check_owner(self) -> None:
        name = self._before.recipe.name if self._before else None
        if name == self._plan.recipe.name or (name is None and self._may_clean):
            return
        owner = f"a run of the recipe {name!r}" if name else "files that no run of shrink wrote"
        raise RecipeError(
            f"the output folder holds {owner}",
            subject=self.path,
            hint="choose another folder with --output, or overwrite it with --force",
        )


def _log_name(step: Step) -> str:
    return f"{LOGS}/{step.index:02d}-{step.name}.log"


def _is_copy(path: Path, content: str | bytes | Path) -> bool:
    """Whether a file is the copy of another already, which may be large."""
    if not isinstance(content, Path) or not path.is_file():
        return False
    return files.sha256(path) == files.sha256(content)


def tasks_of(outcomes: Sequence[StageOutcome]) -> list[Task]:
    """Return the tasks that finished stages took."""
    details = (outcome.result.details for outcome in outcomes if outcome.complete)
    return [one.task for one in details if one is not None and one.task is not None]


def failed_folder(path: Path) -> Path:
    """Return where the report of a run goes that failed over a finished one in `path`."""
    named = path if path.name not in ("", "..") else path.resolve()
    return named.with_name(f"{named.name}.failed")


def _is_finished(report: Report) -> bool:
    """Whether every stage of a report has an artifact; a missed gate changes nothing in that."""
    return all(stage.artifact for stage in report.stages)


def command_line() -> str | None:
    """Return the command that this process is, or None where something else calls shrink."""
    program = Path(sys.argv[0])
    named = program.stem if program.stem != "__main__" else program.parent.name
    return shlex.join(["shrink", *sys.argv[1:]]) if named == "shrink" else None


def environment(outcomes: Sequence[StageOutcome]) -> Environment:
    """Return the versions and devices that the report was made with."""
    known = versions()
    devices = (name for outcome in outcomes for name in outcome.result.devices)
    return Environment(
        shrink=known["shrink"],
        tensorflow=known["tensorflow"],
        devices=tuple(dict.fromkeys(devices)),
        python=platform.python_version(),
        system=platform.platform(),
        machine=machine(),
        packages={k: v for k, v in known.items() if k not in ("shrink", "shrink_sources")},
    )


def _read_report(path: Path) -> Report | None:
    try:
        return read_report(path)
    except InputError:
        return None


def _holds_other_things(path: Path) -> bool:
    """Whether there is anything but what a run of shrink leaves, or a killed one."""
    if not path.is_dir():
        return path.exists()
    rows = files.read_mapping(path / COMPARE_NAME).get("rows")
    runs = [row.get("run") for row in rows if isinstance(row, dict)] if rows else []
    ours = _NAMES | ({*COMPARE_NAMES, *map(str, runs)} if runs else set())
    # A report that cannot be read may be of another version: its run must not be overwritten.
    ours -= set() if _read_report(path) else {REPORT_NAME}
    inside = [*path.iterdir()]
    for folder in (ARTIFACTS, LOGS, SPLITS):
        if (path / folder).is_dir():
            inside += (path / folder).iterdir()
            inside.remove(path / folder)
    names = [one.relative_to(path).as_posix() for one in inside]
    ours_too = (name in ours or _OURS.fullmatch(name) for name in names)
    temporary = (one.name.startswith(files.TEMPORARY_PREFIX) for one in inside)
    return not all(a or b for a, b in zip(ours_too, temporary, strict=True))
