"""A run folder: artifacts, the resolved recipe, and the report, which is written last."""

from __future__ import annotations

import contextlib
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from shrink.base import files
from shrink.base.cache import REPORT_NAME
from shrink.base.errors import InputError, RecipeError, ReportWarning, ResourceError
from shrink.base.files import reached
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
from shrink.recipe.recipe_diff import recipe_changes
from shrink.recipe.resolution import recipe_sha256, resolved_recipe_text, with_taken_task
from shrink.report.comparison import COMPARE_NAMES
from shrink.report.diff import RecipeChange
from shrink.report.headline import Chain
from shrink.report.model import build_report
from shrink.report.run_files import RENDERED, render
from shrink.run.commit import commit_of
from shrink.run.keys import Described
from shrink.run.lineage import Lineage
from shrink.run.process import log_to_keep
from shrink.run.steps import PLAN_NAME

RESOLVED_NAME = "recipe.resolved.yaml"
LOGS = "logs"
"""The folder of what the worker of each stage printed, while it made the artifact."""


class RunFolder:
    """The folder that a run leaves behind.

    The report and the artifacts of a finished run stay as they are until another run has
    finished: artifacts are copied at the end, and what a failed run has to say goes into a folder
    beside this one. Where no finished run stands, artifacts appear as soon as they are made.

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
        if path.is_file():
            raise RecipeError(
                "the output folder is a file, which --force does not overwrite",
                subject=path,
                hint="choose another folder with --output",
            )
        self._before = _read_report(path)
        self._ours = self._before is not None or not _holds_other_things(path)
        self._keeps = self._before is not None and _is_finished(self._before)
        self._waiting: list[tuple[Path, str]] = []
        self._logs: dict[str, bytes] = {}
        self._lineages: dict[str, Lineage] = {}
        self._splits: dict[str, Path] = {}
        if not force:
            self._check_owner()
        files.make_folder(path / ARTIFACTS)
        for folder in (path, path / ARTIFACTS, path / LOGS):
            files.sweep(folder)

    def take(self, step: Step, source: Path) -> tuple[str, str]:
        """Copy a finished step's artifact here; return its relative path and its SHA-256."""
        name = f"{ARTIFACTS}/{step.index:02d}-{step.name}{source.suffix}"
        if self._keeps:
            self._waiting.append((source, name))
        else:
            self._copy(source, name)
        reached(f"artifact-copied:{step.name}")
        return name, files.sha256(source)

    def _copy(self, source: Path, name: str) -> None:
        target = self.path / name
        if not target.is_file() or files.sha256(target) != files.sha256(source):
            files.copy(source, target, before=self._withdraw_report)
            log = f"{LOGS}/{target.stem}.log"
            if log not in self._logs:
                _remove_log(self.path / log)  # it is of another artifact

    def keep_log(self, step: Step, source: Path) -> Path:
        """Keep what the worker of a step printed; return where it will be once the run has ended.

        Raises:
            ResourceError: the disk is full.
        """
        name = f"{LOGS}/{step.index:02d}-{step.name}.log"
        content = log_to_keep(source)
        if not self._keeps:
            files.write_bytes(self.path / name, content)
        self._logs[name] = content
        reached(f"log-kept:{step.name}")
        return (self._path_aside() if self._keeps else self.path) / name

    def keep_lineages(self, lineages: Mapping[str, Lineage], splits: Mapping[str, Path]) -> None:
        """Have `write` keep where each artifact comes from, and the splits it was trained on.

        The folder says so by itself then: on another machine, or when the store has gone.

        Args:
            lineages: by the SHA-256 of each artifact.
            splits: files by their SHA-256, as far as they are known.
        """
        self._lineages, self._splits = dict(lineages), dict(splits)

    def _write_splits(self) -> None:
        splits = {link.splits for one in self._lineages.values() for link in one.links}
        for name in sorted(splits & self._splits.keys()):
            target = self.path / SPLITS / f"{name}.bin"
            if not target.is_file():
                files.make_folder(target.parent)
                files.copy(self._splits[name], target)
        for old in (self.path / SPLITS).glob("*.bin"):
            if old.stem not in splits:
                old.unlink()

    def write(
        self,
        outcomes: Sequence[StageOutcome],
        finals: Sequence[str],
        described: Described,
        warnings: Sequence[ReportWarning] = (),
        chain: Chain | None = None,
        data: DataSet | None = None,
    ) -> Report:
        """Write the recipe, what each step depends on, and the report; return the report."""
        if self._keeps and not all(outcome.complete for outcome in outcomes):
            other = RunFolder(self._path_aside(), self._plan, True, self._trust_model)
            other._keeps, other._waiting, other._logs = False, self._waiting, self._logs
            other._lineages, other._splits = self._lineages, self._splits
            self.path = other.path
            return other.write(outcomes, finals, described, warnings, chain)
        for source, name in self._waiting:
            self._copy(source, name)
        self._waiting.clear()
        for name, log in self._logs.items():
            with contextlib.suppress(ResourceError):  # it is no reason to lose the report
                files.write_bytes(self.path / name, log)
        self._write_splits()
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
        )
        if self._before is not None:
            self.replaced = tuple(recipe_changes(self._before, report))
        lineages = {digest: lineage.to_dict() for digest, lineage in self._lineages.items()}
        contents = {
            RESOLVED_NAME: resolved,
            PLAN_NAME: files.json_text(described),
            **render(report, lineages),
            REPORT_NAME: files.json_text(to_plain(report)),
        }
        files.write_together(self.path, contents, before=lambda: self._make_way(report))
        if _is_finished(report):
            self._remove_failed()
        return report

    def _remove_failed(self) -> None:
        """Remove what an earlier failure of this run left beside it: it is over."""
        failed = failed_folder(self.path)
        report = _read_report(failed)
        if report is None or report.recipe.name != self._plan.recipe.name:
            return
        if not _is_finished(report) and not _holds_other_things(failed):
            shutil.rmtree(failed, ignore_errors=True)

    def _path_aside(self) -> Path:
        """Return where a failed run goes while this folder keeps a finished one."""
        path = failed_folder(self.path)
        # Somebody's own folder: a report among it would not be found.
        return path.with_name(f"{path.name}-2") if _holds_other_things(path) else path

    def _withdraw_report(self) -> None:
        """Remove the last report, before the files that it speaks of change."""
        reached("report-standing")
        for name in (REPORT_NAME, *RENDERED, VOCABULARY_NAME):
            (self.path / name).unlink(missing_ok=True)
        reached("report-withdrawn")

    def _make_way(self, report: Report) -> None:
        """Remove the last report, and what this run does not have of earlier ones."""
        self._withdraw_report()
        kept = {stage.artifact for stage in report.stages}
        for path in (self.path / ARTIFACTS).iterdir():
            if self._ours and _is_artifact(path) and f"{ARTIFACTS}/{path.name}" not in kept:
                path.unlink()
        known = {f"{LOGS}/{Path(name).stem}.log" for name in kept if name} | self._logs.keys()
        for path in (self.path / LOGS).glob("*.log"):
            if self._ours and _is_log(path) and f"{LOGS}/{path.name}" not in known:
                _remove_log(path)

    def _check_owner(self) -> None:
        if not self.path.exists():
            return
        name = self._before.recipe.name if self._before else None
        if name == self._plan.recipe.name:
            return
        if self._before is None and self._ours:
            return
        owner = f"a run of the recipe {name!r}" if name else "files that no run of shrink wrote"
        raise RecipeError(
            f"the output folder holds {owner}",
            subject=self.path,
            hint="choose another folder with --output, or overwrite it with --force",
        )


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
    """Whether there is anything but what a killed run of shrink leaves."""
    if not path.is_dir():
        return path.exists()
    ours = {ARTIFACTS, RESOLVED_NAME, PLAN_NAME, SPLITS, LOGS, *RENDERED}
    ours |= {VOCABULARY_NAME}
    rows = files.read_mapping(path / COMPARE_NAME).get("rows")
    runs = [row.get("run") for row in rows if isinstance(row, dict)] if rows else []
    ours |= {*COMPARE_NAMES, *map(str, runs)} if runs else set()
    # One that cannot be read may be of another version, whose run is nobody's to overwrite.
    ours |= {REPORT_NAME} if _read_report(path) else set()
    entries = [entry for entry in path.iterdir() if entry.name not in ours]
    if (path / ARTIFACTS).is_dir():
        inside = [e for e in (path / ARTIFACTS).iterdir() if f"{ARTIFACTS}/{e.name}" not in ours]
        entries += [entry for entry in inside if not _is_artifact(entry)]
    if (path / LOGS).is_dir():
        entries += [entry for entry in (path / LOGS).iterdir() if not _is_log(entry)]
    return any(not entry.name.startswith(files.TEMPORARY_PREFIX) for entry in entries)


def _is_log(path: Path) -> bool:
    """Whether a file is called what a run calls its logs."""
    return re.fullmatch(r"\d\d+-.+\.log", path.name) is not None


def _remove_log(path: Path) -> None:
    """Remove a log, where that can be: it is no reason to lose the report."""
    with contextlib.suppress(OSError):
        path.unlink()


def _is_artifact(path: Path) -> bool:
    """Whether a file is called what a run calls its artifacts."""
    return re.fullmatch(r"\d\d+-.+\.(keras|tflite)(\.json)?", path.name) is not None
