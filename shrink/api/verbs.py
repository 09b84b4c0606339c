"""The verbs in Python: each runs one stage, as on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shrink.api.given import (
    COMMON,
    Keys,
    data_named,
    model_text,
    path_of,
    plain,
    verb_sections,
)
from shrink.api.results import Run
from shrink.api.session import console_of, ended, working
from shrink.base.console import Console
from shrink.base.errors import ResourceError
from shrink.recipe.plan import Plan
from shrink.recipe.single import Sections, student_value
from shrink.run.options import RunOptions
from shrink.run.session import RUNS, perform
from shrink.run.verb import plan_verb, verb_recipe

if TYPE_CHECKING:
    from shrink.api.kinds import DataGiven, ModelGiven


def train(model: ModelGiven, data: DataGiven = None, **keys: object) -> Run:
    """Train a model, or continue from its weights.

    Args:
        model: a Keras model, a path, `file.py:function`, or a `Run`, whose last artifact it is.
        data: arrays `(x, y)`, a mapping of splits, a `tf.data.Dataset`, a path, a source's name, or
            a recipe's `data` section. A `Run` brings its own.
        keys: of the recipe's stage `train` and of its `training` section; `data_...` and `task_...`
            of these sections; `output`, `force`, `no_cache`, `trust_model`, `custom_objects`,
            `quiet` and `verbose` as the command line has them.

    Raises:
        ShrinkError: `exit_code` says what kind it is. A missed gate is none: see `Run.passed`.
    """
    return _stage("train", model, data, keys)


def prune(model: ModelGiven, data: DataGiven = None, **keys: object) -> Run:
    """Remove the weights that matter least, then fine-tune; arguments as those of `train`."""
    return _stage("prune", model, data, keys)


def cluster(model: ModelGiven, data: DataGiven = None, **keys: object) -> Run:
    """Let the weights of each kernel share a few values; arguments as those of `train`."""
    return _stage("cluster", model, data, keys)


def quantize(model: ModelGiven, data: DataGiven = None, **keys: object) -> Run:
    """Convert to TFLite under a quantization scheme; arguments as those of `train`.

    Schemes that need no examples take no data: `quantize(model, scheme="float16")`.
    """
    return _stage("quantize", model, data, keys)


def compact(model: ModelGiven, data: DataGiven = None, **keys: object) -> Run:
    """Rewrite a .tflite file to need less RAM, with outputs equal to the byte.

    Arguments are those of `train`. It always measures a run; `shrink compact` also writes a file
    alone.
    """
    return _stage("compact", model, data, keys)


def evaluate(model: ModelGiven, data: DataGiven = None, **keys: object) -> Run:
    """Measure a model on the test split: accuracy with its interval, size, memory, latency.

    Arguments are those of `train`, without the keys of a stage, and `gates`, a mapping such as
    `{"accuracy": 0.9}`.
    """
    with working():
        return _call("evaluate", model, data, keys, verb_sections("evaluate", _rest(keys)))


def distill(
    teacher: ModelGiven,
    student: ModelGiven | dict[str, float | bool],
    data: DataGiven = None,
    **keys: object,
) -> Run:
    """Train a student to follow a teacher; the teacher is the baseline of the report.

    Args:
        teacher: a model, as `train` takes it.
        student: another, or a cut of the teacher: `{"width": 0.5, "depth": 0.5, "inherit": True}`.
        data: as `train` takes it.
        keys: of the recipe's stage `distill`, and the others of `train`.

    Raises:
        ShrinkError: see `train`.
    """
    with working():
        sections = verb_sections("distill", _rest(keys), skip=("teacher", "student"))
        sections.stage["student"] = (
            plain(student)
            if isinstance(student, dict)
            else student_value(model_text(student), Path.cwd())
        )
        return _call("distill", teacher, data, keys, sections)


def _stage(kind: str, model: ModelGiven, data: DataGiven, keys: Keys) -> Run:
    with working():
        return _call(kind, model, data, keys, verb_sections(kind, _rest(keys)))


def _rest(keys: Keys) -> Keys:
    return {key: value for key, value in keys.items() if key not in COMMON}


def _call(verb: str, model: ModelGiven, data: DataGiven, keys: Keys, sections: Sections) -> Run:
    """Run a verb's recipe; inside of `working`."""
    console = console_of(keys)
    custom = path_of(keys.get("custom_objects"), "custom_objects")
    value = verb_recipe(verb, model_text(model), sections, data_named(data), custom)
    hint = f"`shrink {verb} --help` lists the keys"
    apart = console if keys.get("output") is None else None
    plan = plan_verb(value, f"shrink.{verb}", hint, apart)
    return run_of(plan, options_of(plan, keys), console)


def options_of(plan: Plan, keys: Keys) -> RunOptions:
    """Return how a plan is to be run."""
    first, last = keys.get("from_stage"), keys.get("until")
    return RunOptions(
        output=path_of(keys.get("output")) or RUNS / plan.recipe.name,
        force=bool(keys.get("force")),
        use_store=not keys.get("no_cache"),
        first=None if first is None else str(first),
        last=None if last is None else str(last),
        trust_model=bool(keys.get("trust_model")),
    )


def run_of(plan: Plan, options: RunOptions, console: Console) -> Run:
    """Run a plan and return what it left behind.

    Raises:
        ShrinkError: it failed.
    """
    result = perform(plan, options, console)
    if isinstance(result, int):
        raise ResourceError(
            "this machine is not the chief of the cluster, and the chief has the result",
            subject="TF_CONFIG",
            hint="use the command line on all machines: `shrink run RECIPE`",
        )
    ended(result, console)
    return Run(result.folder, result.report, result.exit_code)
