"""How `shrink search` chooses trials, against Optuna's samplers and random ones, on equal terms.

    python -m tests.benchmarks.bench_search table tests/benchmarks/search/digits.yaml TABLE.json
    python -m tests.benchmarks.bench_search table model.h5 TABLE.json --cifar10 FOLDER
    python -m tests.benchmarks.bench_search compare TABLE.json [--trials 10] [--seeds 0 1 2 3 4]

`table` trains every setting of the recipe's `search.space` once, as `shrink run` does, and writes
figures, scores of the validation examples, and the accuracy on the test split. `compare` searches
in that table: with the same starting trial, the same sizes before training, and the same number of
trained trials. `tpe` is Optuna's TPESampler and `optuna-gp` its GPSampler (left out without torch),
both with 3 startup trials; they are told the sizes of trials that break a limit and are not
trained. A stage counts 5 seconds and one for each epoch, unless an earlier trial shares it.

Prints for each sampler and seed the hypervolume after half and all of the trials: the share that
trained trials dominate of what the whole table dominates, within the limit of the size. Then, for
searches with --max-drop: which file is chosen, and whether it keeps the limit on the test split.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import json
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna

from shrink.base.console import Console
from shrink.base.foreign import Json
from shrink.contract.job import Outline
from shrink.contract.result import scores_from_plain, scores_to_plain
from shrink.contract.search import Trial
from shrink.recipe.overrides import Override
from shrink.recipe.plan import Plan
from shrink.recipe.resolution import recipe_sha256
from shrink.recipe.search_config import Range
from shrink.run.options import RunOptions
from shrink.run.process import preloading
from shrink.search import session
from shrink.search.candidates import Candidates
from shrink.search.choose import Sizes, Steps
from shrink.search.goal import SIZE, Goal, cost_of, goal_of
from shrink.search.session import BASELINE, TRIALS, Runs, Search, Worker, trial_figures
from shrink.search.space import Dimension
from shrink.search.trials import Journal
from tests.benchmarks.cifar_part import write_part
from tests.benchmarks.harness import say, say_json, subcommands

CHANCE = 0.1
"""Accuracy that a hypervolume is measured from."""


def _tpe_sampler(seed: int) -> optuna.samplers.BaseSampler:
    def constraints(trial: optuna.trial.FrozenTrial) -> Sequence[float]:
        found: Sequence[float] = trial.user_attrs["constraints"]
        return found

    return optuna.samplers.TPESampler(
        seed=seed,
        multivariate=True,
        n_startup_trials=3,
        constraints_func=constraints,
        warn_independent_sampling=False,
    )


def _gp_sampler(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.GPSampler(seed=seed, n_startup_trials=3, warn_independent_sampling=False)


SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler] | None] = {
    "shrink": None,
    "tpe": _tpe_sampler,
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}
if importlib.util.find_spec("torch") is not None:
    SAMPLERS["optuna-gp"] = _gp_sampler
Point = tuple[float, float]


def main() -> None:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parsers = subcommands(parser, {"table": table, "compare": compare})
    parsers["table"].add_argument("recipe", help="with search.space; or ResNet8")
    parsers["table"].add_argument("--cifar10", type=Path, help="{train,test}/<class>/*")
    for one in parsers.values():
        one.add_argument("table", type=Path)
    parsers["compare"].add_argument("--trials", type=int, default=10, help="that are trained")
    parsers["compare"].add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parsers["compare"].add_argument("--flash", type=int, help="limit; by default two thirds")
    parsers["compare"].add_argument("--max-drop", type=float, nargs="*", default=[0.02, 0.05])
    chosen = parser.parse_args()
    chosen.run(chosen)


def table(chosen: argparse.Namespace) -> None:
    """Train every setting of a recipe's space once; goes on where it was stopped."""
    folder = chosen.table.with_suffix("")
    if chosen.cifar10 is not None:
        chosen.recipe = str(write_part(chosen.cifar10, Path(chosen.recipe), folder))
    candidates = Candidates.of(chosen.recipe, [])
    made = Search(candidates, RunOptions(output=folder), Console(quiet=True))
    rows: list[dict[str, Any]] = []
    if chosen.table.is_file():
        rows = json.loads(chosen.table.read_text(encoding="utf-8"))["rows"]
    chain = candidates.space.chains[0]
    grid = itertools.product(*map(_values, chain.dimensions.values()))
    every: list[Any] = [None, *(dict(zip(chain.dimensions, one, strict=True)) for one in grid)]
    with preloading():
        for number, settings in enumerate(every):
            if any(one["settings"] == settings for one in rows):
                continue
            plan = made.plan if settings is None else candidates.plan(settings)
            last = plan.baseline.name if settings is None else None
            of = [made.runs.choose(plan, folder / f"{number}", last), None]
            of[1] = made.runs.show(plan, folder / f"{number}-test") if last is None else None
            row: dict[str, Any] = {"settings": settings}
            for split, result in zip(("validation", "test"), of, strict=True):
                if result is not None and result.error is None:
                    stage = result.report.ends[-1] if settings else result.report.stages[0]
                    before = result.report.stages[0]
                    row[split], row[f"{split}_baseline"] = (
                        trial_figures(stage),
                        trial_figures(before),
                    )
                    if split == "validation":
                        row["scores"] = scores_to_plain(result.scores.get(stage.name, {}))
            rows.append(row)
            say_json({key: row[key] for key in row if key in ("settings", "validation")})
            text = json.dumps({"recipe": str(Path(chosen.recipe).resolve()), "rows": rows})
            chosen.table.write_text(text, encoding="utf-8")


def _values(dimension: Dimension) -> list[Json]:
    if not isinstance(dimension, Range):
        return list(dimension)
    assert dimension.step is not None
    count = round((dimension.high - dimension.low) / dimension.step) + 1
    return [round(dimension.low + n * dimension.step, 10) for n in range(count)]


class Table:
    """The rows of a table, by the recipe that they are of."""

    def __init__(self, path: Path) -> None:
        found = json.loads(path.read_text(encoding="utf-8"))
        self.recipe = found["recipe"]
        self.baseline = next(one for one in found["rows"] if one["settings"] is None)
        candidates = Candidates.of(self.recipe, [])
        self.rows = {
            recipe_sha256(candidates.plan(one["settings"])): one
            for one in found["rows"]
            if one["settings"] is not None and "test" in one
        }

    def row(self, plan: Plan) -> dict[str, Any]:
        """Return the row of a trial."""
        return self.rows[recipe_sha256(plan)]


class _Runs(Runs):
    """Returns what the table says of a trial."""

    def __init__(self, table: Table, options: RunOptions, console: Console) -> None:
        super().__init__(options, False, None, console)
        self.table = table

    def choose(self, plan: Plan, folder: Path, last: str | None = None) -> Any:
        """Return figures and scores on validation examples."""
        row = self.table.row(plan)
        report = SimpleNamespace(ends=[SimpleNamespace(name="end")], gates=())
        scores = {"end": scores_from_plain(row["scores"])}
        return SimpleNamespace(error=None, report=report, scores=scores, row=row)

    def baseline_key(self, plan: Plan) -> str:
        """Return what stands for the baseline."""
        return "table"

    def figures(self, result: Any, folder: Path) -> dict[str, float]:
        """Return the figures of a row."""
        return dict(result.row["validation"])


class _Sizes(Sizes):
    table: Table

    def of(self, plan: Plan) -> Outline:
        """Return the size of a row."""
        return Outline(figures={SIZE: self.table.row(plan)["validation"][SIZE]})


class _Steps(Steps):
    """Assumes 5 seconds for a stage and one for each epoch, none for what was trained."""

    def seconds(self, plans: Sequence[Plan], trained: Sequence[Plan]) -> list[float]:
        """Return the seconds of plans."""
        done = {one for plan in trained for one in self._prefixes(plan)}
        return [0.1 + sum(s for p, s in self._prefixes(o).items() if p not in done) for o in plans]

    @staticmethod
    def _prefixes(plan: Plan) -> dict[str, float]:
        found, text = dict[str, float](), ""
        for step in plan.steps[1:]:
            text += f"{step.kind} {step.config}"
            found[text] = 5.0 + step.epochs
        return found


def compare(chosen: argparse.Namespace) -> None:
    """Search in a table by each sampler with each seed, and print what came of it."""
    known = Table(chosen.table)
    session.Steps = _Steps  # type: ignore[attr-defined]
    _Sizes.table = known
    sizes = sorted(row["validation"][SIZE] for row in known.rows.values())
    most = chosen.flash or round(sizes[len(sizes) * 2 // 3])
    whole = hypervolume(map(_point, known.rows.values()), most)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in SAMPLERS}
    for seed, name in itertools.product(chosen.seeds, SAMPLERS):
        trials = searched(known, name, seed, chosen.trials, {SIZE: most})
        done = [_point({"validation": one.figures}) for one in trials if one.status == "done"]
        volumes = [hypervolume(done[:count], most) / whole for count in (len(done) // 2, len(done))]
        found[name].append((volumes[0], volumes[1]))
        row = {"sampler": name, "seed": seed, "half": volumes[0], "all": volumes[1]}
        say_json({**row, "trained": len(done), "untrained": len(trials) - len(done)})
    for name, rows in found.items():
        half, all_ = (statistics.fmean(column) for column in zip(*rows, strict=True))
        errors = [statistics.stdev(c) / len(rows) ** 0.5 for c in zip(*rows, strict=True)]
        say(f"{name:10} half {half:.3f} +- {errors[0]:.3f}, all {all_:.3f} +- {errors[1]:.3f}")
    for limit, seed in itertools.product(chosen.max_drop, chosen.seeds):
        say_json({"max_drop": limit, "seed": seed, **_chosen(known, seed, chosen.trials, limit)})


def searched(
    known: Table, name: str, seed: int, trials: int, limits: Mapping[str, float], **more: Any
) -> tuple[Trial, ...]:
    """Return the trials of a search in a table; both objectives count, unless a drop is limited."""
    given = {"seed": seed, "trials": trials, "constraints": limits, **more}
    sets = [f"search.{key}={json.dumps(value)}" for key, value in given.items()]
    with tempfile.TemporaryDirectory(prefix="bench-search-") as folder:
        candidates = Candidates.of(known.recipe, [Override.parse(one) for one in sets])
        options = RunOptions(output=Path(folder))
        made = Search(candidates, options, Console(quiet=True))
        made.runs, made.make_sizes = _Runs(known, options, made.console), _Sizes
        baseline = dict(known.baseline["validation"])
        goal = goal_of(candidates.config, {}, "", "accuracy", baseline)
        place = made.folder / TRIALS / BASELINE
        place.mkdir(parents=True)
        (place / session.SCORES).write_text(json.dumps(known.baseline["scores"]))
        worker = Worker(made, goal, baseline, 0)
        if (sampler := SAMPLERS[name]) is not None:
            worker.chooser = _Sampled(worker, sampler(seed), name == "optuna-gp")  # type: ignore[assignment]
        with contextlib.suppress(KeyError):  # a setting that is not in the table
            worker.work()
        return tuple(worker.trials.read().trials)


class _Sampled:
    """Chooses trials by a sampler of Optuna, which is told of all trials so far.

    Args:
        worker: that trains them.
        sampler: suggests settings.
        tells_sizes: whether untrained trials are told with the metric at chance: GPSampler learns
            from complete trials alone, TPESampler also from pruned ones.
    """

    def __init__(
        self, worker: Worker, sampler: optuna.samplers.BaseSampler, tells_sizes: bool
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._goal, self._candidates = worker.goal, worker.candidates
        self._tells_sizes, self._told = tells_sizes, 0
        directions = ["minimize"] * len(self._goal.optimised)
        self._study = optuna.create_study(sampler=sampler, directions=directions)  # type: ignore[arg-type]
        self._asked: list[tuple[Any, optuna.Trial]] = []

    def next(self, journal: Journal, left_s: float) -> tuple[Any, list[Any]]:
        """Return the next settings; random ones where the sampler repeats itself."""
        for one in journal.trials[self._told :]:
            self._tell(one)
        self._told = len(journal.trials)
        for _ in range(3):
            trial = self._study.ask()
            settings = self._suggested(trial)
            if self._is_new(settings, journal):
                self._asked.append((settings, trial))
                return settings, []
            trial.set_user_attr("constraints", [0.0])
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        draws = itertools.islice(self._candidates.space.random(len(journal.entries)), 1000)
        return next((one for one in draws if self._is_new(one, journal)), None), []

    def _is_new(self, settings: Any, journal: Journal) -> bool:
        return recipe_sha256(self._candidates.plan(settings)) not in journal.recipes

    def _suggested(self, trial: optuna.Trial) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for key, one in self._candidates.space.chains[0].dimensions.items():
            if isinstance(one, Range):
                value = trial.suggest_float(key, one.low, one.high, step=one.step, log=one.log)
                found[key] = round(value, 10)
            else:
                found[key] = one[trial.suggest_categorical(key, range(len(one)))]
        return found

    def _tell(self, one: Trial) -> None:
        trial = next((trial for settings, trial in self._asked if settings == one.settings), None)
        if trial is None:
            dimensions = self._candidates.space.chains[0].dimensions
            if one.settings.keys() != dimensions.keys():
                return  # the recipe as it is, which no setting says
            values = {
                key: one.settings[key] if isinstance(of, Range) else of.index(one.settings[key])
                for key, of in dimensions.items()
            }
            self._study.enqueue_trial(values)
            trial = self._study.ask()
            self._suggested(trial)
        goal, figures = self._goal, dict(one.figures)
        excesses = [(figures.get(n) or 0.0) / most - 1 for n, most in goal.limits.items()]
        trial.set_user_attr("constraints", excesses or [0.0])
        if one.status == "infeasible" and not self._tells_sizes:
            self._study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return
        figures.setdefault(goal.metric, CHANCE)
        self._study.tell(trial, [cost_of(name, figures.get(name)) for name in goal.optimised])


def _chosen(known: Table, seed: int, trials: int, limit: float) -> dict[str, Any]:
    """Return what a search with --max-drop chooses: by the bound of the drop, and by the drop."""
    limits = {"max_drop": limit}
    done = [
        one
        for one in searched(known, "shrink", seed, trials, limits, objectives=[])
        if one.status == "done" and one.feasible
    ]
    as_written = Candidates.of(known.recipe, [])

    def told(best: Trial | None) -> dict[str, Any]:
        if best is None:
            return {}
        row = known.row(as_written.plan(best.settings))
        drop = row["test_baseline"]["accuracy"] - row["test"]["accuracy"]
        return {
            "bytes": best.figures[SIZE],
            "bound": best.drop_bound,
            "test_drop": drop,
            "kept": drop <= limit + 1e-9,
        }

    goal = Goal("accuracy", {}, limit, smallest=True)
    smallest = min(done, key=lambda one: one.figures[SIZE] or 0, default=None)
    return {"by_bound": told(goal.best(done)), "by_drop": told(smallest)}


def _point(row: Mapping[str, Any]) -> Point:
    return float(row["validation"][SIZE]), float(row["validation"]["accuracy"])


def hypervolume(points: Iterable[Point], most: float) -> float:
    """Return the share of the box below `most` bytes and above chance that points dominate."""
    volume, reached = 0.0, CHANCE
    steps: Sequence[Point] = sorted(one for one in points if one[0] <= most)
    for number, (size, accuracy) in enumerate(steps):
        reached = max(reached, accuracy)
        end = steps[number + 1][0] if number + 1 < len(steps) else most
        volume += (end - size) * (reached - CHANCE)
    return volume / (most * (1 - CHANCE))


if __name__ == "__main__":
    main()
