"""Warnings about figures of a report that are probably wrong."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from shrink.base.errors import ReportWarning, listed
from shrink.base.figures import LOSS, Figure, format_value, metric_figure, target_of
from shrink.base.intervals import limit_below_resolution
from shrink.contract.details import Limits, metric_delta
from shrink.contract.report import Guess, Stage
from shrink.contract.result import Scores
from shrink.report.config import Gate

_WIDE = 0.1
"""An interval of a fraction from which on a result hardly says anything: 10 points."""
_FEW = 30
_LARGE_DROP = 0.1
_LARGE_RISE = 0.5
"""Of an error: half as much again."""
_HARDLY = 0.2
"""Less than this share of the way from guessing to a perfect answer is hardly better."""
_PRUNED = 0.1
"""Share of zeros in the kernels that training does not leave by itself."""
_SLACK = 1.01
"""Two conversions of one model differ by a few bytes."""
_LEAST_DB = 10.0
"""Less is noise above a tenth of the signal's power: more than rounding to 8 bits should cost."""
_MOST_NAMES = 10
_TRAIN = ("train", "distill")
_MEASURED = ("baseline", "compact")
"""Stages that use no training examples."""
_BYTES = (200, 255)
"""Between these lies the largest value of images that nobody scaled."""


def sanity_warnings(
    stages: Sequence[Stage],
    *,
    baseline: str,
    finals: Sequence[str],
    gates: Mapping[str, Gate],
    scores: Scores,
    previous: Mapping[str, str | None],
    tests_all: bool = False,
) -> list[ReportWarning]:
    """Return what a reader should look into before anything is made of the figures.

    Each cause is reported once: where the baseline is at chance level, no stage after it is
    said to be, and nothing is compared with it.

    Args:
        stages: of the report, with their differences to the baseline.
        baseline: name of the stage that all others are compared with.
        finals: names of the last stage of each branch.
        gates: of the run, by name.
        scores: of the baseline's test examples, by metric.
        previous: by the name of a stage, the one whose artifact it started from.
        tests_all: whether `data.test_split` is 1.
    """
    complete = {stage.name: stage for stage in stages if stage.metrics is not None}
    base = complete.get(baseline)
    warnings: list[ReportWarning] = []
    if base is not None:
        trains = any(stage.kind not in _MEASURED for stage in stages)
        warnings += _of_data(base, trains, tests_all)
        at_chance = _at_chance(base, base.guess, "baseline-at-chance")
        warnings += at_chance or _skewed_labels(base)
        if not at_chance:
            ends = [complete[name] for name in finals if name in complete and name != baseline]
            warnings += [warning for end in ends for warning in _of_result(end, base, list(gates))]
        warnings += _unresolved(gates, scores)
    for stage in complete.values():
        source = complete.get(previous.get(stage.name) or "")
        warnings += _larger(stage, source)
        warnings += _lost_zeros(stage, source)
        warnings += _lost_outputs(stage)
        warnings += _over_limit(stage)
    return warnings


def data_warnings(
    count: int, in_train: Collection[str], in_test: Collection[str], tests_all: bool = False
) -> list[ReportWarning]:
    """Return what a report on these examples would warn of, before anything is trained.

    Args:
        count: of the test examples.
        in_train: names of the classes of the examples to train on.
        in_test: those of the test examples.
        tests_all: whether `data.test_split` is 1.
    """
    warnings = []
    if count < _FEW:
        message = f"only {_counted(count)}, on which every figure of a report rests"
        warnings.append(ReportWarning("few-test-examples", message, _more_examples(tests_all)))
    guess = Guess(
        only_in_test=tuple(name for name in in_test if name not in in_train),
        only_in_train=tuple(name for name in in_train if name not in in_test),
    )
    return [*warnings, *_missing_classes(guess, few=bool(warnings))]


def _unresolved(gates: Mapping[str, Gate], scores: Scores) -> Iterator[ReportWarning]:
    """Yield the limits on a drop that a single test example exceeds."""
    for name, gate in gates.items():
        target = target_of(name)
        if target is None or gate.ratio is not None or gate.confidence is not None:
            continue
        if target.kind in ("drop", "rise") or gate.against is not None:
            metric = target.figure.name
            found = limit_below_resolution(metric, gate.limit, scores.get(metric), "test")
            yield from [found] if found else []


def _more_examples(tests_all: bool) -> str:
    return f"test on more examples: more data{'' if tests_all else ', or a larger data.test_split'}"


def _of_data(base: Stage, trains: bool, tests_all: bool) -> Iterator[ReportWarning]:
    """Yield what is wrong with the examples, which all stages share."""
    few = list(_few_examples(base, tests_all))
    yield from few
    if trains:
        yield from _missing_classes(base.guess or Guess(), few=bool(few))


def _missing_classes(guess: Guess, *, few: bool) -> Iterator[ReportWarning]:
    """Yield classes of one split only; a few test examples cannot hold every class anyway."""
    for names, here, there in (
        (guess.only_in_test, "the test examples", "the training examples"),
        (() if few else guess.only_in_train, "the training examples", "the test examples"),
    ):
        if names:
            what = "a class is" if len(names) == 1 else f"{len(names)} classes are"
            yield ReportWarning(
                "classes-missing-from-split",
                f"{what} in {here} and not in {there}: {listed(names, _MOST_NAMES)}",
                "`shrink data check` counts the classes of every split; add examples, or split "
                "them so that every class is in each",
            )


def _few_examples(base: Stage, tests_all: bool) -> Iterator[ReportWarning]:
    count, metric = base.examples, _main_metric(base)
    if not count or metric is None:
        return
    limits = base.intervals.get(metric.name, Limits())
    low, high = limits.low or 0.0, limits.high or 0.0
    is_wide = metric.is_from_0_to_1 and high - low >= _WIDE
    if not is_wide and count >= _FEW:
        return
    message = f"only {_counted(count)}"
    if limits.low is not None:
        span = f"{_text(metric, low)} to {_text(metric, high)}"
        message += f": the 95 % interval of {metric.name} is {span}"
    yield ReportWarning("few-test-examples", message, _more_examples(tests_all))


def _as_good_as_constant(stage: Stage, guess: Guess | None) -> tuple[Figure, float, float] | None:
    """Return metric, value and that of a constant answer where the value is hardly better."""
    guess = guess or Guess()
    metric = metric_figure(guess.metric) if guess.metric else None
    value, chance = (stage.figure(metric.name) if metric else None), guess.value
    if metric is None or value is None or chance is None:
        return None
    low, high = _interval(stage, metric.name)
    return (metric, value, chance) if hardly_better(metric, value, chance, low, high) else None


def _at_chance(stage: Stage, guess: Guess | None, code: str) -> list[ReportWarning]:
    """Return a warning where a stage scores what an answer that ignores the input would."""
    guess = guess or Guess()
    compared = _as_good_as_constant(stage, guess)
    if compared is None or (compared[0].name == "accuracy" and _skill_on_every_class(stage)):
        return []
    metric, value, chance = compared
    if chance == float(metric.larger_is_better):
        message = "all test examples have the same target, so a constant answer is perfect, and "
        message += f"{metric.name} ({_text(metric, value)}) says nothing of the model"
        hint = "test on examples of every class, or with different targets"
        return [ReportWarning(code, message, hint, stage.name)]
    low, high = _interval(stage, metric.name)
    word = _how_much(metric, value, chance, low, high)
    guessing = f"{_text(metric, chance)}{_guessed(metric, guess)}"
    message = (
        f"{metric.name} is {_text(metric, value)}, {word} better than chance level ({guessing})"
    )
    if code == "baseline-at-chance":
        message += "; comparisons with it are meaningless"
    return [ReportWarning(code, message, _causes(guess, stage.kind), stage.name)]


def _skill_on_every_class(stage: Stage) -> str:
    """Return the balanced accuracy or AUC that proves a model better than chance, or "".

    On skewed labels accuracy cannot: always answering the commonest class scores nearly as high.
    Balanced accuracy is the mean over classes of recall; the standard error is that of the mean of
    independent binomial shares, each with one hit and one miss added.
    """
    area = stage.figure("roc_auc")
    if area is not None and area >= 0.5 + _HARDLY / 2:
        return f"roc_auc is {area:.3f}"
    if len(stage.extra.confusion) != 1:
        return ""
    counts = stage.extra.confusion[0].counts
    rows = [(row[k], sum(row)) for k, row in enumerate(counts) if sum(row) > 0]
    if len(rows) < 2:
        return ""
    balanced = sum(hits / n for hits, n in rows) / len(rows)
    shares = [((hits + 1) / (n + 2), n) for hits, n in rows]
    error = math.sqrt(sum(p * (1 - p) / n for p, n in shares)) / len(rows)
    chance = 1 / len(rows)
    clearly = balanced - chance >= _HARDLY * (1 - chance) and balanced - 1.96 * error > chance
    return f"balanced accuracy is {100 * balanced:.1f} %" if clearly else ""


def _skewed_labels(base: Stage) -> list[ReportWarning]:
    """Return a warning where a skilled model is judged by accuracy on skewed labels."""
    main, compared = _main_metric(base), _as_good_as_constant(base, base.guess)
    if compared is None or main is None or main.name != "accuracy":
        return []
    _, value, chance = compared
    skill = _skill_on_every_class(base)
    return [
        ReportWarning(
            "skewed-labels",
            f"{100 * chance:.1f} % of the test labels are of one class, so accuracy "
            f"({100 * value:.1f} %) says little about the other classes; {skill}",
            "judge by a metric of every class: task: {metrics: [balanced_accuracy, accuracy]}, "
            "and a gate balanced_accuracy_drop",
            base.name,
        )
    ]


def _how_much(
    metric: Figure, value: float, chance: float, low: float | None, high: float | None
) -> str:
    better = value > chance if metric.larger_is_better else value < chance
    if not better:
        return "no"
    if low is None or high is None:
        return "hardly"
    proven = low > chance if metric.larger_is_better else high < chance
    return "hardly" if proven else "not significantly"


def hardly_better(
    metric: Figure, value: float, chance: float, low: float | None, high: float | None
) -> bool:
    """Return whether a value, with its interval, is about what a constant answer scores."""
    if not metric.larger_is_better:
        return value >= (1 - _HARDLY) * chance
    if value - chance < _HARDLY * (1 - chance):
        return True
    # A wide interval is its own warning: there are too few examples to tell.
    return low is not None and high is not None and low <= chance and high - low < _WIDE


def _guessed(metric: Figure, guess: Guess) -> str:
    if metric.name == "mean_squared_error":
        return ", always predicting the mean"
    if not guess.num_classes:
        return ""
    return f", always predicting the most frequent of {guess.num_classes} classes"


def _causes(guess: Guess, kind: str) -> str:
    """Return what is likely wrong: the order of the classes, or the scale of the inputs.

    A stage that trained the model took classes and inputs from these very examples.
    """
    causes = ["that it was trained for long enough"]
    if kind in _TRAIN:
        return f"check {'; '.join([*causes, *_normalisation(guess)])}"
    causes = [*_normalisation(guess), *causes]
    if guess.classes:
        order = f"that the model's outputs are the classes in this order: {_order(guess)}"
        causes.insert(1 if _is_scaled_otherwise(guess) else 0, order)
    return f"check {'; '.join(causes)}"


def _normalisation(guess: Guess) -> Iterator[str]:
    low, high = guess.low, guess.high
    if low is None or high is None:
        return
    clues = ""
    if guess.rescales is not None:
        has = "scales its inputs itself" if guess.rescales else "has no layer that scales them"
        clues = f", and the model {has}"
    if _is_scaled_otherwise(guess):
        clues += (
            ": does it expect 0 to 255?"
            if guess.rescales
            else ": was it trained on 0 to 1? data.normalize: {scale: 1/255}, or "
            "--normalize-scale 1/255"
        )
    between = f"inputs are {low:.4g} to {high:.4g} as data.normalize leaves them"
    yield f"the normalisation ({between}{clues})"


def _is_scaled_otherwise(guess: Guess) -> bool:
    """Tell whether the inputs are images' bytes for no scaling layer, or 0 to 1 for one."""
    low, high, rescales = guess.low, guess.high, guess.rescales
    if low is None or high is None or low < 0:
        return False
    return _BYTES[0] <= high <= _BYTES[1] if rescales is False else bool(rescales) and high <= 1


def _order(guess: Guess) -> str:
    names = guess.classes
    if list(names) == [str(number) for number in range(len(names))]:
        return "in the order of the labels, from 0"
    more = (guess.num_classes or len(names)) - len(names)
    return f"{', '.join(names)}{f' and {more} more' if more > 0 else ''}"


def _of_result(stage: Stage, base: Stage, gates: Sequence[str]) -> list[ReportWarning]:
    metric = _main_metric(base)
    if metric is None:
        return []
    if {metric.name, f"{metric.name}_drop", f"{metric.name}_rise"} & set(gates):
        return []  # the gate reports the loss
    drop = _large_drop(stage, base, metric)
    return drop or _at_chance(stage, base.guess, "stage-at-chance")


def _large_drop(stage: Stage, base: Stage, metric: Figure) -> list[ReportWarning]:
    delta = metric_delta(stage.delta, metric.name)
    before, after = base.figure(metric.name), stage.figure(metric.name)
    if delta is None or delta.low is None or delta.high is None or before is None or after is None:
        return []
    lost = -delta.value if metric.larger_is_better else delta.value
    proven = delta.high < 0 if metric.larger_is_better else delta.low > 0
    guess, chance = base.guess, None
    if guess is not None and guess.metric == metric.name and not _skewed_labels(base):
        chance = guess.value
    half_way = chance is not None and chance != before and lost >= abs(before - chance) / 2
    # Of the best value, 1; an error without an upper end has only its own size to compare with.
    ends_at_1 = metric.range is not None and metric.range[1] == 1.0
    is_large = lost >= _LARGE_DROP if ends_at_1 else lost >= _LARGE_RISE * before > 0
    if not proven or not (is_large or half_way):
        return []
    amount = f" by {100 * lost:.2f} points" if metric.unit == "fraction" else ""
    guessing = ""
    limits = _interval(stage, metric.name)
    if chance is not None and hardly_better(metric, after, chance, *limits):
        word = _how_much(metric, after, chance, *limits)
        guessing = f", which is {word} better than chance level ({_text(metric, chance)})"
    verb = "fell" if metric.larger_is_better else "rose"
    gate = f"{metric.name}_{'drop' if metric.larger_is_better else 'rise'}"
    limit = "0.02" if metric.unit == "fraction" else f"{before / 10:.2g}"
    return [
        ReportWarning(
            "large-drop",
            f"{metric.name} {verb}{amount}, from {_text(metric, before)} to "
            f"{_text(metric, after)}{guessing}, and no gate looks at it",
            f"compress less, fine-tune for longer, or set the allowed drop: gates: "
            f"{{{gate}: {limit}}}",
            stage.name,
        )
    ]


def _larger(stage: Stage, source: Stage | None) -> Iterator[ReportWarning]:
    """Yield a warning where quantization made the file larger."""
    if stage.kind != "quantize" or source is None:
        return
    after, before = stage.figure("tflite_bytes"), source.figure("tflite_bytes")
    if after and before and after > _SLACK * before:
        sizes = f"{format_value(after, 'bytes')} instead of {format_value(before, 'bytes')}"
        arena, given = stage.figure("arena_bytes"), source.figure("arena_bytes")
        if arena and given and arena > _SLACK * given:
            sizes += (
                f"; so is its tensor arena: {format_value(arena, 'bytes')} instead of "
                f"{format_value(given, 'bytes')}"
            )
        yield ReportWarning(
            "artifact-larger-than-source",
            f"the file is larger than the model that it was made from: {sizes}",
            "keep the model as it was (zeros that a sparse file leaves out are stored again), or "
            "try another scheme: for LiteRT alone, dynamic_wi8_afp32 adds no scales of "
            "activations, and unrolls no recurrent layer",
            stage.name,
        )


def _sparsity(stage: Stage) -> float:
    """Return the share of zeros in the kernels: biases begin as zeros."""
    rows = [
        (row.parameters, row.sparsity) for row in stage.extra.layers if row.sparsity is not None
    ]
    return sum(count * zeros for count, zeros in rows) / max(1, sum(count for count, _ in rows))


def _lost_zeros(stage: Stage, source: Stage | None) -> Iterator[ReportWarning]:
    """Yield a warning where training filled the zeros of a model that was pruned before."""
    if stage.training is None or source is None:
        return
    before, after = _sparsity(source), _sparsity(stage)
    same = stage.figure("parameters") == source.figure("parameters")
    if same and before >= _PRUNED and after < before / 2:
        yield ReportWarning(
            "zeros-lost",
            f"training filled zeros of a pruned model: {before:.0%} of the weights were zero, now "
            f"{after:.0%}",
            "prune and train in one recipe, whose later stages keep the zeros",
            stage.name,
        )


def _over_limit(stage: Stage) -> Iterator[ReportWarning]:
    """Yield a warning where training took more memory than it was allowed."""
    limit = stage.training.memory_limit_bytes if stage.training else None
    peak = stage.figure("training_peak_bytes")
    if limit and peak and peak > limit:
        yield ReportWarning(
            "over-memory-limit",
            f"training took {format_value(peak, 'bytes')}, more than training.memory_limit "
            f"({format_value(limit, 'bytes')})",
            "set training.memory_limit lower by the difference",
            stage.name,
        )


def _lost_outputs(stage: Stage) -> Iterator[ReportWarning]:
    """Yield a warning on outputs that quantization drowned: a mean over several hides them."""
    task, audit = stage.extra.task, stage.extra.audit
    if task is None or audit is None or len(task.outputs) < 2:
        return
    lost = {
        task.outputs[row.output].name: row.snr_db
        for row in audit.agreement
        if row.compared.endswith("to quantized") and row.snr_db and row.snr_db < _LEAST_DB
    }
    if lost:
        named = ", ".join(
            f"{name} (signal to noise {decibels:.1f} dB)" for name, decibels in lost.items()
        )
        yield ReportWarning(
            "outputs-lost",
            f"of {len(task.outputs)} outputs these no longer follow the float model: {named}; "
            "a metric that is a mean over outputs need not show it",
            "scale targets of very different sizes alike before training, or try the scheme "
            "static_wi8_ai16 or dynamic_wi8_afp32",
            stage.name,
        )


def _main_metric(stage: Stage) -> Figure | None:
    names = [name for name in stage.metrics or {} if name != LOSS]
    return metric_figure(names[0]) if names else None


def _interval(stage: Stage, metric: str) -> tuple[float | None, float | None]:
    limits = stage.intervals.get(metric, Limits())
    return limits.low, limits.high


def _text(metric: Figure, value: float) -> str:
    return f"{100 * value:.1f} %" if metric.unit == "fraction" else format_value(value, metric.unit)


def _counted(count: int) -> str:
    return f"{count:,} test example{'' if count == 1 else 's'}"
