"""What the defaults of `prune: {method: channels}` lose, and what settings by hand would.

Run: python -m tests.benchmarks.bench_defaults --work FOLDER [--only digits tones ...]
         [--settings old new ...] [--cifar10 FOLDER --resnet8 model.h5] [--test]

Small models are trained on data of the machine, as recipes/ do it, and kept in the work folder.
Each then loses channels until half of its multiply-accumulates, or half of the bytes of its float32
file, are left: with the defaults as they were (`old`), as they are (`new`), and by hand. All is
measured of the float32 .tflite file by LiteRT. Settings by hand are chosen for each model and
budget by what validation examples tell (`of` so many); `--test` shows the same choices on test
examples. What was measured is kept in FOLDER/found.jsonl and not measured again.

Figures are points lost against the unpruned model: of accuracy, balanced accuracy, mean IoU or R^2
(of outputs that are real numbers), times 100.

`unet` and `resnet8` were not looked at while defaults were chosen.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tf_keras as keras

from shrink.contract.model_source import ModelSource
from shrink.recipe.load import load_recipe
from shrink.stages.context import StageContext
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.run import run as prune
from shrink.task.artifact import evaluate_artifact
from shrink.tflite.convert import convert
from tests.benchmarks.harness import say
from tests.jobs import context_of

_ROOT = Path(__file__).parents[2]
_RECIPES = _ROOT / "recipes"


@dataclass(frozen=True)
class Case:
    """A model and its data, after a recipe of recipes/.

    Attributes:
        metric: what is lost of, larger is better and 1 the best.
        width: of the recipe's model: at full width the digits lose nothing, whatever is done.
        folder: of data that is not on every machine.
        model: a trained file, in place of the recipe's builder.
    """

    recipe: str
    metric: str
    width: float = 1.0
    folder: Path | None = None
    model: Path | None = None


CASES = {
    "digits": Case("digits", "accuracy", width=0.2),
    "tones": Case("tones-keyword", "balanced_accuracy"),
    "machine": Case("machine-anomaly", "r2"),
    "series": Case("series-forecast", "r2"),
    "text": Case("text-intent", "accuracy"),
    "unet": Case("digits-segment", "mean_iou"),
}
HELD_OUT = ("unet", "resnet8")
BUDGETS = ("macs", "file_bytes")


def _hand(
    importance: str = "least_squares",
    allocation: str = "sensitivity",
    *,
    teacher: bool = True,
    rate: float = 2e-3,
    epochs: int = 10,
) -> dict[str, Any]:
    return {
        "importance": importance,
        "allocation": allocation,
        "teacher": "self" if teacher else None,
        "epochs": epochs,
        "training": {"optimizer": {"learning_rate": rate, "schedule": "cosine"}},
    }


SETTINGS: dict[str, dict[str, Any]] = {
    "old": {
        "importance": "l2",
        "allocation": "uniform",
        "teacher": None,
        "epochs": 5,
        "fine_tuning": "training",
        "training": {},
    },
    "new": {},
    "l2-uniform": _hand("l2", "uniform"),
    "l2-sensitivity": _hand("l2"),
    "ls-uniform": _hand(allocation="uniform"),
    "ls-sensitivity": _hand(),
    "alone": _hand(teacher=False),
    "slow": _hand(rate=5e-4),
    "fast": _hand(rate=5e-3),
    "long": _hand(epochs=25),
}


def main() -> None:
    """Measure what is missing, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS))
    parser.add_argument("--budgets", nargs="*", default=list(BUDGETS))
    parser.add_argument("--cifar10", type=Path, help="train/<class>/*.jpg and test/<class>/*.jpg")
    parser.add_argument("--resnet8", type=Path, help="a ResNet8 that is trained on them")
    parser.add_argument("--test", action="store_true", help="show figures of test examples")
    options = parser.parse_args()
    cases = dict(CASES)
    if options.cifar10 and options.resnet8:
        trained = {"folder": options.cifar10.resolve(), "model": options.resnet8.resolve()}
        cases["resnet8"] = Case("cifar10-channels", "accuracy", **trained)
    options.work.mkdir(parents=True, exist_ok=True)
    chosen = [name for name in cases if not options.only or name in options.only]
    found = Found(options.work / "found.jsonl")
    for name in chosen:
        bench = Bench(cases[name], options.work / f"{name}.keras")
        for budget in options.budgets:
            for setting in options.settings:
                if not found.has(name, budget, setting):
                    found.add({"model": name, "budget": budget, "setting": setting,
                               **bench.pruned(budget, SETTINGS[setting])})  # fmt: skip
    say(table(found.rows, chosen, options.budgets, "test" if options.test else "validation"))


class Found:
    """What was measured, in a file of lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def has(self, model: str, budget: str, setting: str) -> bool:
        """Whether it is there."""
        wanted = (model, budget, setting)
        return any((r["model"], r["budget"], r["setting"]) == wanted for r in self.rows)

    def add(self, row: dict[str, Any]) -> None:
        """Keep it."""
        self.rows.append(row)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


class Bench:
    """A trained model, and what is left of it when it is pruned.

    Args:
        case: what it is.
        path: where the trained model is, or is put.
    """

    def __init__(self, case: Case, path: Path) -> None:
        self._case, self._path = case, case.model or path
        self._recipe = load_recipe(_RECIPES / f"{case.recipe}.yaml").recipe
        if not self._path.is_file():
            self._train()
        keras.backend.clear_session()
        model = self._context({}).load()
        self._before, self._bytes = self._measured(model, self._context({}))

    def _train(self) -> None:
        file, _, function = self._recipe.model.partition(":")
        arguments = {} if self._case.width == 1 else {"width": self._case.width}
        path = (_RECIPES / file).resolve()
        builder = ModelSource("builder", path, function=function, arguments=arguments)
        training = self._recipe.training.model_dump(mode="json")
        context = self._context(training, builder)
        model = context.load()
        epochs = getattr(self._recipe.stages[0], "epochs", 1)
        context.train(model, context.task(model).objective(), epochs)
        model.save(self._path)

    def _context(
        self, training: dict[str, Any], source: ModelSource | Path | None = None
    ) -> StageContext:
        data = self._recipe.data.model_dump(mode="json", exclude_unset=True) | {"slices": None}
        if self._case.folder is not None:
            data |= {"path": str(self._case.folder), "cache": "memory"}
        return context_of(
            Path(tempfile.mkdtemp()),
            kind="prune",
            inputs={"model": source or self._path},
            data=data,
            training=training,
            task={"metrics": [self._case.metric]},
            sensitivities=self._path.parent / "sensitivities",
        )

    def _measured(self, model: keras.Model, context: StageContext) -> tuple[dict[str, float], int]:
        content = convert(model, "float32").content
        task = context.task(model)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.tflite"
            path.write_bytes(content)
            splits = {"validation": context.dataset.validation, "test": context.dataset.test}
            found = {
                name: 100 * evaluate_artifact(path, examples, task).defined(self._case.metric)
                for name, examples in splits.items()
            }
        return found, len(content)

    def pruned(self, budget: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Prune to a budget, and return the points lost on each split, and the time it took."""
        keras.backend.clear_session()
        settings = dict(settings)
        context = self._context(settings.pop("training", {}))
        if settings.get("teacher") and self._case.metric == "r2":
            settings["teacher"] = None  # softened outputs are those of classes
        limit: float = 0.5 if budget == "macs" else self._bytes // 2
        config = PruneConfig.model_validate({"method": "channels", budget: limit, **settings})
        wall, cpu = time.perf_counter(), time.process_time()
        result = prune(config, context)
        spent = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
        assert result.model is not None
        after, size = self._measured(result.model, context)
        lost = {split: round(self._before[split] - after[split], 3) for split in after}
        return {**lost, "bytes": size, **{k: round(v, 1) for k, v in spent.items()},
                "notes": list(result.notes)}  # fmt: skip


def table(rows: Iterable[dict[str, Any]], models: list[str], budgets: list[str], split: str) -> str:
    """Return a Markdown table: points lost by the old defaults, the new ones, the best by hand."""
    lines = [
        "| model | half of | old defaults | new defaults | best by hand | which | of |",
        "|---|---|---:|---:|---:|---|---:|",
    ]
    sums: list[tuple[float, ...]] = []
    rows = list(rows)
    for name in models:
        for budget in budgets:
            known = {r["setting"]: r for r in rows if (r["model"], r["budget"]) == (name, budget)}
            hand = [s for s in known if s not in ("old", "new")]
            if not hand or "old" not in known:
                continue
            best = min(hand, key=lambda s: known[s]["validation"])
            cells = [known[s][split] if s in known else float("nan") for s in ("old", "new", best)]
            sums.append(tuple(cells))
            shown = " | ".join(f"{cell:.2f}" for cell in cells)
            lines.append(f"| {name} | {budget} | {shown} | {best} | {len(hand)} |")
    if sums:
        means = " | ".join(f"{sum(column) / len(sums):.2f}" for column in zip(*sums, strict=True))
        lines.append(f"| mean of {len(sums)} | | {means} | | |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
