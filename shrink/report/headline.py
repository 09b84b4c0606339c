"""The outcome of a run, and the first sentences of its report."""

from __future__ import annotations

from dataclasses import dataclass, field

from shrink.base.errors import listed
from shrink.base.figures import (
    COSTS,
    Figure,
    Unit,
    figure_of,
    format_value,
    metric_figure,
)
from shrink.contract.details import Deltas, MetricDelta, metric_delta
from shrink.contract.report import Ending, Origin, Report, ReportedChain, Stage
from shrink.contract.result import Scores
from shrink.report.comparison_rows import TIMING_NOISE
from shrink.report.content import is_lower_bound, main_metric, warnings_of, was_stopped
from shrink.report.deltas import change_texts, proven, stage_delta
from shrink.report.gate_lines import missed_gates, subject
from shrink.report.page import Tile, Tone, capital
from shrink.report.slices import slice_sentence

_MOST_NAMES = 3


def ending(report: Report) -> Ending:
    """Return how a run ended.

    `passed` and `failed` are for runs that had something to keep to: gates that were decided, or
    a stage that broke down. A run without either is `finished`, whatever its figures are, and one
    that was stopped from outside is `interrupted`.
    """
    failed = [stage for stage in report.stages if stage.status == "failed"]
    if any(map(was_stopped, failed)):
        return "interrupted"
    if failed or missed_gates(report) or not report.passed:
        return "failed"
    return "passed" if any(gate.judged for gate in report.gates) else "finished"


def tone(report: Report) -> Tone:
    """Return how an outcome is coloured: nothing with a warning is plainly good."""
    how = ending(report)
    if how == "failed":
        return "bad"
    if how == "interrupted" or warnings_of(report):
        return "careful"
    return "good" if how == "passed" else "neutral"


def verdict(report: Report) -> str:
    """Return the run's outcome in a few words, such as `FAILED: 1 of 3 gates missed: accuracy`."""
    how = ending(report)
    stopped = [stage.name for stage in report.stages if stage.status == "failed"]
    if how in ("interrupted", "failed") and stopped:
        return f"{how.upper()}: {', '.join(stopped)} did not finish"
    if how == "failed":
        missed = missed_gates(report)
        if not missed:
            return "FAILED"
        names = list(dict.fromkeys(gate.name for gate in missed))
        shown = listed(names, _MOST_NAMES)
        return f"FAILED: {len(missed)} of {len(report.gates)} gates missed: {shown}"
    count = len(warnings_of(report))
    warned = f", {count} warning{'s' if count > 1 else ''}" if count else ""
    return f"{how.upper()}{_gates(report)}{warned}"


def _gates(report: Report) -> str:
    """Return what the word alone would hide: that there are no gates, or that some waited."""
    total = len(report.gates)
    if not total:
        return ", no gates"
    skipped = sum(not gate.judged for gate in report.gates)
    if not skipped:
        return ""
    return f", {skipped} of {total} gate{'s' if total > 1 else ''} not checked"


@dataclass(frozen=True)
class Continuation:
    """The first baseline of a line of runs.

    Attributes:
        origin: its `run` and `stage`, and its figures in the groups of a report's stage.
        scores: what intervals are computed from, by metric; empty where they are not known.
        same_examples: whether it was measured on the test examples of this run.
    """

    origin: Origin
    scores: Scores = field(default_factory=dict)
    same_examples: bool = False

    @property
    def reported(self) -> ReportedChain:
        """What the report says of it."""
        return ReportedChain(origin=self.origin, same_examples=self.same_examples)

    def delta(self, stage: Stage, scores: Scores) -> Deltas:
        """Return the differences of a complete stage to the origin, as `delta` has them.

        Metrics have an interval where both were measured on the same examples.
        """
        return stage_delta(stage, self.origin, scores, self.scores if self.same_examples else {})


_PROVEN = {
    "better": "a proven gain",
    "worse": "a proven loss",
    "no proven difference": "no proven change on these test examples",
    None: "",
}
_WORDS: dict[Unit, tuple[str, str]] = {"ms": ("faster", "slower"), "count": ("fewer", "more")}
_MANY_ZEROS = 0.1
_SAME = 0.02
_HARDLY = 1.005
"""A factor that prints as 1."""


@dataclass(frozen=True)
class Headline:
    """A result of the run in one sentence and a few figures."""

    stage: str
    sentence: str
    tiles: tuple[Tile, ...]


def headlines(report: Report) -> list[Headline]:
    """Return a headline per final stage that is complete; the table has those beyond four."""
    return [_headline(report, stage) for stage in _results(report)[:4]]


def origin_sentences(report: Report) -> list[str]:
    """Return what became of the first model of a line of runs, a sentence per result."""
    results, metric = _results(report), main_metric(report)
    changes = [(stage.name, _since_origin(report, stage, metric)) for stage in results]
    several = len(results) > 1
    return [f"Stage {name}: {text}" if several else text for name, text in changes if text]


def _results(report: Report) -> list[Stage]:
    return [stage for stage in report.ends if stage.size is not None]


def _headline(report: Report, stage: Stage) -> Headline:
    base = report.stage(report.baseline) or stage
    metric = main_metric(report)
    cost = _cost(report, stage, metric) if metric else ""
    sentences = [_smaller(stage, base), _arena(stage), cost]
    sentences += [slice_sentence(stage), _since_origin(report, stage, metric)]
    names = list(COSTS[:4])
    if _saves_zeros_only(stage, base):
        names += ["nonzero_parameters", "gzip_bytes"]
    tiles = [_figure_tile(stage, base, name) for name in names]
    if metric:
        tiles.insert(0, _metric_tile(stage, base, metric))
    found = (tile for tile in [*tiles, _training(report)] if tile is not None)
    return Headline(stage.name, " ".join(filter(None, sentences)), tuple(found))


def _smaller(stage: Stage, base: Stage) -> str:
    size = COSTS[0]
    after, before = stage.figure(size), base.figure(size)
    if not after or not before or stage is base:
        return ""
    texts = [figure_of(size).text(one) for one in (after, before)]
    if after == before:
        return f"The TFLite files of {stage.name} and {base.name} are equally large: {texts[0]}."
    factor, word = _factor(figure_of(size), after, before)
    sizes = " instead of ".join(texts)
    names = f"The TFLite file of {stage.name} is {factor:.3g} times {word} than that of {base.name}"
    return f"{names}: {sizes}."


def _factor(figure: Figure, value: float, before: float) -> tuple[float, str]:
    smaller, larger = _WORDS.get(figure.unit, ("smaller", "larger"))
    return (before / value, smaller) if value < before else (value / before, larger)


def _arena(stage: Stage) -> str:
    """Return what became of the arena of a compacted file, which is what it was compacted for."""
    found = stage.extra.compact
    if found is None or not found.changed or not found.arena_before or not found.arena_after:
        return ""
    after, before = (format_value(one, "bytes") for one in (found.arena_after, found.arena_before))
    what = "activations take" if found.target == "litert" else "arena takes"
    return f"Compacted, its {what} {after} instead of {before}."


def _cost(report: Report, stage: Stage, metric: str) -> str:
    """Return the change of the metric, and whether chance alone could explain it."""
    delta = metric_delta(stage.delta, metric)
    if delta is None or stage.name == report.baseline:
        return ""
    return f"{subject(metric)} {_change(metric, delta)}."


def _change(metric: str, delta: MetricDelta) -> str:
    change, limits = change_texts(metric, delta)
    if limits is None:
        return f"changed by {change}; there is no interval"
    text = "is unchanged" if delta.value == 0 else f"changed by {change}"
    sentence = f"{text} (95 % interval of the difference {limits})"
    return f"{sentence}: {_PROVEN[proven(metric, delta)]}"


def _since_origin(report: Report, stage: Stage, metric: str | None) -> str:
    """Return what became of the model that the first run of this line began with."""
    if report.chain is None:
        return ""
    origin, changes = report.chain.origin, []
    before = (origin.size or {}).get("tflite_bytes")
    after = stage.figure("tflite_bytes")
    if before and after:
        changes.append(f"{format_value(before, 'bytes')} became {format_value(after, 'bytes')}")
    delta = metric_delta(stage.delta_origin, metric) if metric else None
    if metric and delta and not report.chain.same_examples:
        changes.append(f"{metric} is not comparable: the test examples differ")
    elif metric and delta:
        changes.append(f"{metric} {_change(metric, delta)}")
    since = f"Since {origin.stage} of {origin.run}"
    return f"{since}: {', '.join(changes)}." if changes else ""


def _metric_tile(stage: Stage, base: Stage, metric: str) -> Tile:
    figure, delta = metric_figure(metric), metric_delta(stage.delta, metric)
    before = "the baseline" if stage is base else f"baseline: {figure.text(base.figure(metric))}"
    if delta is not None and stage is not base:
        before = f"{change_texts(metric, delta)[0]}, {before}"
    return Tile(capital(figure.title or metric), figure.text(stage.figure(metric)), before)


def _figure_tile(stage: Stage, base: Stage, name: str) -> Tile | None:
    figure, value, before = figure_of(name), stage.figure(name), base.figure(name)
    if value is None:
        return None
    label, text = capital(figure.title), figure.text(value)
    if stage is base:
        return Tile(label, text, "the baseline")
    if not value or not before:
        return Tile(label, text, f"baseline: {figure.text(before)}")
    factor, word = _factor(figure, value, before)
    if factor < (1 + TIMING_NOISE if figure.group == "latency" else _HARDLY):
        return Tile(label, text, f"baseline: {figure.text(before)}")
    return Tile(label, f"{factor:.3g}x {word}", f"{text} instead of {figure.text(before)}")


def _saves_zeros_only(stage: Stage, base: Stage) -> bool:
    """Whether parameters became zero, which the size of the TFLite file does not show."""
    total, nonzero = stage.figure("parameters"), stage.figure("nonzero_parameters")
    ratio = stage.ratio("tflite_bytes")
    if stage is base or not total or nonzero is None or ratio is None:
        return False
    return nonzero < (1 - _MANY_ZEROS) * total and abs(ratio - 1) <= _SAME


def _training(report: Report) -> Tile | None:
    figure = figure_of("training_peak_bytes")
    peaks = [stage.figure(figure.name) for stage in report.stages]
    known = [peak for peak in peaks if peak is not None]
    if not known:
        return None
    bounded = any(map(is_lower_bound, report.stages))
    note = "largest of all stages" + (", a lower bound" if bounded else "")
    return Tile("Training memory", figure.text(max(known)), note)
