"""Metrics that need all examples at once, collected batch by batch."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from shrink.base.bootstrap import Resampled
from shrink.base.metrics import Metric, metric_of
from shrink.base.scores.output import output_of
from shrink.base.scores.rule import Rows, Rule, Weighted, joined
from shrink.base.types import Array
from shrink.base.user_metric import UserMetric
from shrink.task.losses import without_ignored
from shrink.task.metrics import detection
from shrink.task.metrics.resample import resample
from shrink.task.metrics.user import MOST_SECONDS, Collected, OfExamples, resampled
from shrink.task.task import Task


class WholeSplit:
    """Metrics over all examples, each averaged over the outputs that it goes with.

    Args:
        task: losses, logits and classes.
        names: keys of metrics that are no means over examples.
    """

    def __init__(self, task: Task, names: Sequence[str]) -> None:
        self._task = task
        chosen = list(dict.fromkeys(names))
        self._rules = {name: _rules(task, name) for name in chosen if name not in task.functions}
        self._functions = [task.functions[name] for name in chosen if name in task.functions]
        self._seen = Collected()
        self._kept: dict[tuple[str, int], list[Rows]] = {
            (name, i): [] for name, rules in self._rules.items() for i in rules
        }
        self._counts: list[int] = []
        self._nan: list[Array] = []
        self.groups: Array | None = None
        """The slices of each example, for users' functions: see `shrink.task.slices.groups_of`."""

    def add(
        self, outputs: Sequence[Array], targets: Sequence[Array], masks: Sequence[Array | None]
    ) -> None:
        """Keep what a batch tells of each metric; arrays are by output."""
        task = self._task
        if task.detector is not None:
            outputs, masks = [task.detector.detections(outputs)], [None]
        else:
            targets, masks = without_ignored(task.losses, targets, masks)
        start = sum(self._counts)
        self._counts.append(len(outputs[0]))
        groups = None if self.groups is None else self.groups[start : start + len(outputs[0])]
        pairs = zip(outputs, masks, strict=True)
        self._nan.append(np.stack([_any_nan(own, mask) for own, mask in pairs], axis=1))
        for (name, i), kept in self._kept.items():
            one = output_of(
                outputs[i],
                targets[i],
                mask=masks[i],
                from_logits=task.from_logits[i],
                loss=task.losses[i],
                classes=task.classes,
                groups=groups,
            )
            kept.append(self._rules[name][i].keep(one))
        if self._functions:
            self._seen.add(outputs, targets, masks)

    @property
    def examples(self) -> int:
        """How many there are."""
        return sum(self._counts)

    def values(self) -> dict[str, float | None]:
        """Return each metric, None where it is not defined."""
        ones = np.ones((1, self.examples))
        found = {name: float(self._weighted(name).of(ones)[0]) for name in self._rules}
        found |= {one.key: self._metric(one)() for one in self._functions}
        return {name: None if np.isnan(value) else value for name, value in found.items()}

    def by_output(self) -> dict[tuple[str, int], float]:
        """Return each metric of each of several outputs, NaN where it is not defined."""
        if len(self._task.losses) == 1:
            return {}
        ones = np.ones((1, self.examples))
        return {
            (name, i): float(one.of(ones)[0])
            for name in self._rules
            for i, one in self._each(name).items()
        }

    def resampled(
        self, most_seconds: float = MOST_SECONDS, slice_of: int | None = None
    ) -> dict[str, Resampled | None]:
        """Return each metric with what its interval is computed from; None is not defined.

        Args:
            most_seconds: for the calls of a user's function.
            slice_of: how many examples there are in all, where these are a slice of them.
        """
        found: dict[str, Resampled | None] = {}
        if self._rules:
            every = [self._weighted(name) for name in self._rules]
            found |= zip(
                self._rules, resample(every, self.examples, slice_of=slice_of), strict=True
            )
        return found | {
            one.key: resampled(self._metric(one), most_seconds) for one in self._functions
        }

    def _metric(self, function: UserMetric) -> OfExamples:
        return self._seen.metric(function, self.groups)

    def within(self, chosen: Array) -> WholeSplit:
        """Return the same metrics over some of the examples, which keep their order.

        Args:
            chosen: their places, int64 (m,), ascending.
        """
        place = np.full(self.examples, -1)
        place[chosen] = np.arange(len(chosen))
        self._kept = {key: [joined(rows, self._counts)] for key, rows in self._kept.items()}
        self._counts = [len(place)]
        part = copy.copy(self)
        part._kept = {key: [_some(rows, place)] for key, (rows,) in self._kept.items()}
        part._counts = [len(chosen)]
        part._nan = [np.concatenate(self._nan)[chosen]]
        part._seen = self._seen.some(chosen)
        part.groups = None if self.groups is None else self.groups[chosen]
        return part

    def only(self, name: str) -> WholeSplit:
        """Return one of the metrics alone, over the same examples."""
        part = copy.copy(self)
        part._rules = {key: rules for key, rules in self._rules.items() if key == name}
        part._functions = [one for one in self._functions if one.key == name]
        return part

    def kept(self, name: str) -> Rows:
        """Return what was kept of all examples for a metric of one output."""
        return joined(self._kept[name, 0], self._counts)

    def undefined(self, name: str) -> str:
        """Return when a metric is not defined, in words."""
        if name not in self._rules:
            return "its function returned NaN"
        rules = self._rules[name]
        rule = next(iter(rules.values()))
        if rule.follows_nan and self._nan:
            wrong = np.asarray(np.concatenate(self._nan)[:, list(rules)].any(axis=1))
            if wrong.any():
                return f"the outputs of {wrong.sum()} of {len(wrong)} examples have NaN"
        return rule.undefined

    def _each(self, name: str) -> dict[int, Weighted]:
        """Return a metric of each output, as a function of the examples' weights."""
        return {
            i: rule.over(joined(self._kept[name, i], self._counts), self.examples)
            for i, rule in self._rules[name].items()
        }

    def _weighted(self, name: str) -> Weighted:
        each = [*self._each(name).values()]
        if len(each) == 1:
            return each[0]
        metrics = [one.of for one in each]
        return Weighted(
            lambda weights: np.mean([metric(weights) for metric in metrics], axis=0),
            sum(one.columns for one in each),
            share=max(one.share for one in each) / len(each),
            part=max(one.part for one in each) / len(each),
            right=min((one.right for one in each if one.right), default=0),
            wrong=min((one.wrong for one in each if one.wrong), default=0),
            why=each[0].why,
        )


def _some(rows: Rows, place: Array) -> Rows:
    """Return the rows of examples that have a new place, which is at least 0."""
    new = place[rows.example]
    return Rows(new[new >= 0], tuple(values[new >= 0] for values in rows.values))


def _any_nan(outputs: Array, mask: Array | None) -> Array:
    """Return whether an element that counts is NaN, of each example, bool (n,)."""
    found = np.isnan(np.asarray(outputs).sum(axis=tuple(range(1, np.ndim(outputs)))))
    if not found.any():  # a sum finds NaN, or infinities of both signs, at a tenth of the cost
        return np.asarray(found)
    nan = np.isnan(outputs)
    if mask is not None:
        nan &= mask.reshape(mask.shape + (1,) * (nan.ndim - mask.ndim))
    return np.asarray(nan.reshape(len(nan), -1).any(axis=1))


def _rules(task: Task, name: str) -> dict[int, Rule]:
    """Return the rule of a metric for each output that it goes with."""
    metric = metric_of(name)
    if metric is None:
        raise ValueError(f"there is no metric {name!r}")
    if task.detector is not None:
        return {0: rule_of(metric)}  # of all outputs, decoded together
    return {i: rule_of(metric) for i in task.measured(name)}


def rule_of(metric: Metric) -> Rule:
    """Return how a metric that is no mean is computed."""
    make = metric.info.rule or detection.RULES[metric.name]
    return make(dict(metric.arguments))
