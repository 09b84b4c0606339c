"""Results of calls: a run with its stages, or a comparison of several runs."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shrink.base.console import Console
from shrink.base.errors import ResourceError
from shrink.base.figures import FIGURES
from shrink.base.packages import extra_hint
from shrink.contract.comparison import ComparedRow, Front
from shrink.contract.comparison import Comparison as ComparisonDocument
from shrink.contract.report import Figures, GateResult, Report, Stage
from shrink.contract.report_file import read_report
from shrink.contract.search import Best, Searched, Trial

if TYPE_CHECKING:
    import pandas

_TEXT_COLUMNS = 100


@dataclass(frozen=True)
class RunStage:
    """A stage of a run.

    Attributes:
        name, kind, status: as report.json has them.
        artifact: the model that it left, `.keras` or `.tflite`; None where it left none.
        metrics: of the test examples, by name.
        size, memory, latency: figures by name, sizes in bytes, times in milliseconds.
        reported: everything that report.json says of it.
    """

    name: str
    kind: str
    status: str
    artifact: Path | None
    metrics: Figures = field(repr=False)
    size: Figures = field(repr=False)
    memory: Figures = field(repr=False)
    latency: Figures = field(repr=False)
    reported: Stage = field(repr=False)

    @property
    def figures(self) -> Figures:
        """All figures and metrics by name; None is one that does not apply or was not measured."""
        return {**self.metrics, **self.size, **self.memory, **self.latency}


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run.

    Attributes:
        folder: the run folder; of a run whose `output` was one file, that file.
        report: what report.json says.
        exit_code: of the same run on the command line: 0, or 1 where a gate was missed.
    """

    folder: Path
    report: Report = field(repr=False)
    exit_code: int = 0

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Run:
        """Return the run that a folder holds.

        Raises:
            InputError: there is no report that can be read.
        """
        path = Path(folder)
        report = read_report(path)
        return cls(path if path.is_dir() else path.parent, report, 0 if report.passed else 1)

    @property
    def name(self) -> str:
        """The recipe's name."""
        return self.report.recipe.name

    @property
    def passed(self) -> bool:
        """Whether no gate was missed; true without gates."""
        return self.report.passed

    @property
    def gates(self) -> tuple[GateResult, ...]:
        """What became of each gate."""
        return self.report.gates

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the report warns of."""
        return tuple(warning.text() for warning in self.report.warnings)

    @property
    def stages(self) -> tuple[RunStage, ...]:
        """The stages in order; the baseline is the first."""
        return tuple(_stage(stage, self.folder) for stage in self.report.stages)

    def stage(self, name: str) -> RunStage:
        """Return the stage of this name.

        Raises:
            KeyError: there is none.
        """
        return {stage.name: stage for stage in self.stages}[name]

    @property
    def artifact(self) -> Path | None:
        """The last stage's artifact; None where it left none."""
        return self.stages[-1].artifact if self.report.stages else None

    @property
    def figures(self) -> Figures:
        """The last stage's figures and metrics by name."""
        return self.stages[-1].figures if self.report.stages else {}

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with a row for each stage and a column for each figure.

        Raises:
            ResourceError: pandas is not installed.
        """
        rows: list[dict[str, object]] = [
            {"stage": one.name, "kind": one.kind, "status": one.status, **one.figures}
            for one in self.stages
        ]
        return _table(rows, "stage")

    def show(self) -> None:
        """Print the report, as the command line does."""
        Console().print(str(self))

    def __repr__(self) -> str:
        metrics = {**self.stages[-1].metrics} if self.report.stages else {}
        said = [f"{name} {value:.4g}" for name, value in metrics.items() if value is not None]
        size = self.figures.get("tflite_bytes")
        said += [f"{size:,.0f} bytes as .tflite"] if size else []
        outcome = self.report.outcome or ("passed" if self.passed else "failed")
        return f"<Run {self.name!r} {outcome}: {', '.join([*said, f'in {self.folder}'])}>"

    def __str__(self) -> str:
        from rich.console import Console as RichConsole

        from shrink.report.sections import render_report

        stream = io.StringIO()
        console = RichConsole(file=stream, width=_TEXT_COLUMNS, highlight=False)
        folder = self.folder if self.folder.is_dir() else None
        render_report(self.report, console, run_folder=folder, with_notes=True)
        return stream.getvalue().rstrip()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: verdict, warnings, table of stages, gates."""
        from shrink.report.sections import notebook_html

        return notebook_html(self.report, self.folder)


def _stage(stage: Stage, folder: Path) -> RunStage:
    return RunStage(
        name=stage.name,
        kind=stage.kind,
        status=stage.status,
        artifact=None if stage.artifact is None else folder / stage.artifact,
        metrics=stage.metrics or {},
        size=stage.size or {},
        memory=stage.memory or {},
        latency={name: value for name, value in (stage.latency or {}).items() if name in FIGURES},
        reported=stage,
    )


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs side by side.

    Attributes:
        document: what compare.json says.
        folder: where compare.html lies; None where nothing was written.
        exit_code: of a sweep the highest of its runs'.
    """

    document: ComparisonDocument = field(repr=False)
    folder: Path | None = None
    exit_code: int = 0

    @property
    def rows(self) -> tuple[ComparedRow, ...]:
        """A row for each branch of each run."""
        return self.document.rows

    @property
    def fronts(self) -> tuple[Front, ...]:
        """The Pareto front of the metric against each cost."""
        return self.document.fronts

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs, each once; those without a report are left out."""
        here = self.folder or Path()
        folders = dict.fromkeys(here / row.run for row in self.rows if row.stage is not None)
        return tuple(map(Run.load, folders))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with a row for each row, and columns of settings and figures.

        Raises:
            ResourceError: pandas is not installed.
        """
        rows = [
            {"name": row.name, "status": row.status, **row.settings, **row.figures}
            for row in self.rows
        ]
        return _table(rows, "name")

    def show(self) -> None:
        """Print the table, as the command line does."""
        Console().print(str(self))

    def __repr__(self) -> str:
        place = "" if self.folder is None else f" in {self.folder}"
        return f"<Comparison of {self.document.title}: {len(self.rows)} rows{place}>"

    def __str__(self) -> str:
        from rich.console import Console as RichConsole

        from shrink.report.comparison import COMPARE_HTML, render_comparison_terminal

        stream = io.StringIO()
        console = RichConsole(file=stream, width=_TEXT_COLUMNS, highlight=False)
        more = "with output=DIR" if self.folder is None else f"in {COMPARE_HTML}"
        render_comparison_terminal(self.document, console, more)
        return stream.getvalue().rstrip()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the table of the comparison's page."""
        from shrink.report.comparison import notebook_comparison_html

        return notebook_comparison_html(self.document, self.folder)


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What a search found.

    Attributes:
        document: what search.json says.
        folder: of the search; paths in `document` start there.
        exit_code: of the best trial's run: 1 where a gate of the recipe is missed.
    """

    document: Searched = field(repr=False)
    folder: Path
    exit_code: int = 0

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Every trial, metrics on the validation split."""
        return self.document.trials

    @property
    def front(self) -> tuple[Trial, ...]:
        """The trials on the Pareto front, the smallest file first."""
        by_number = {one.number: one for one in self.trials}
        return tuple(by_number[number] for number in self.document.front)

    @property
    def best(self) -> Best:
        """The trial that was chosen; its figures are of the test split."""
        assert self.document.best is not None, "a search without one raises"
        return self.document.best

    @property
    def run(self) -> Run:
        """The run of the best trial."""
        return Run.load(self.folder / Path(self.best.recipe).parent)

    @property
    def artifact(self) -> Path:
        """The best trial's file."""
        return self.folder / self.best.artifact

    @property
    def recipe(self) -> Path:
        """The recipe that makes it again."""
        return self.folder / self.best.recipe

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with a row for each trial, and columns of settings and figures.

        Raises:
            ResourceError: pandas is not installed.
        """
        rows = [
            {
                "number": one.number,
                "status": one.status,
                "feasible": one.feasible,
                **one.settings,
                **one.figures,
            }
            for one in self.trials
        ]
        return _table(rows, "number")

    def show(self) -> None:
        """Print the front and the best trial, as the command line does."""
        Console().print(str(self))

    def __repr__(self) -> str:
        return f"<SearchResult of {self.document.name}: {len(self.trials)} trials in {self.folder}>"

    def __str__(self) -> str:
        from shrink.search.output import search_lines

        return "\n".join(search_lines(self.document, self.folder))


def _table(rows: list[dict[str, object]], index: str) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise ResourceError(
            "pandas is not installed",
            subject="to_pandas",
            hint=extra_hint("pandas"),
        ) from error
    return pandas.DataFrame(rows).set_index(index)
