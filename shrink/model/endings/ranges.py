"""Bounds of a computation's outputs, found operator by operator (interval arithmetic).

Moore, Kearfott & Cloud 2009, "Introduction to Interval Analysis", chapter 2, over tensors in place
of numbers, with one more fact: along which axis the values add up to what (a softmax: to 1). The
bounds are sound: whatever the inputs and the weights, no value lies outside. They need not be
tight, as when a tensor meets itself again (x - x): whether values do reach beyond all bounds is
told apart, and is so where weights multiply them and nothing takes them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shrink.model.endings.kinds import ANY, UNKNOWN, Computation, Loop, Range
from shrink.model.endings.rules import REAL, RULES, WEIGHTS, Site, clamped, joined, range_of_values

_TURNS = 4
"""Of a loop, before its values are taken to be anything at the start of a turn."""


def range_of(computation: Computation, tensor: Any) -> Range:
    """Return the bounds of a tensor's values."""
    return _Analysis(computation).range_of(tensor)


class _Analysis:
    """Finds bounds backwards from a tensor; every tensor once, without recursion but in loops."""

    def __init__(self, computation: Computation, assumed: Mapping[Any, Range] | None = None):
        self.graph = computation
        self._found: dict[Any, Range] = dict(assumed or {})

    def range_of(self, tensor: Any) -> Range:
        waiting = [tensor]
        while waiting:
            current = waiting[-1]
            if current in self._found:
                waiting.pop()
                continue
            missing = self._needed(current)
            if missing:
                waiting += missing
                continue
            self._found[waiting.pop()] = self._compute(current)
        return self._found[tensor]

    def _needed(self, tensor: Any) -> list[Any]:
        """Return the inputs whose bounds are needed first; a product of weights needs none."""
        node = self.graph.node(tensor)
        if node is None or self.graph.constant(tensor) is not None:
            return []
        if node.kind not in RULES and node.loop is None:
            return []
        return [each for each in node.inputs if each not in self._found]

    def _compute(self, tensor: Any) -> Range:
        values = self.graph.constant(tensor)
        if values is not None:
            return range_of_values(values)
        node = self.graph.node(tensor)
        if node is None:
            return ANY
        if node.loop is not None:
            return self._looped([self._found[each] for each in node.inputs], node.loop)
        if node.kind in WEIGHTS:
            found = replace(ANY, fixed=True)
        elif node.kind in REAL:
            found = ANY
        elif node.kind in RULES:
            inputs = [self._found[each] for each in node.inputs]
            found = RULES[node.kind](Site(node, inputs, self.graph))
            if inputs and all(each.fixed for each in inputs):
                found = replace(found, fixed=True, reached=True)
        else:
            found = UNKNOWN
        return found if node.clamp is None else clamped(found, *node.clamp)

    def _looped(self, begin: list[Range], loop: Loop) -> Range:
        """Return bounds that a turn of the loop does not leave, starting from within them."""
        values, turns = begin, 0
        while (after := self._turn(values, loop)) != values:
            turns += 1
            values = [
                new
                if new == old or turns < (2 if place in loop.collected else 1) * _TURNS
                # What still grows may grow for ever, or not. Lists are given up last: they may
                # hold less than what is carried from turn to turn.
                else UNKNOWN
                for place, (old, new) in enumerate(zip(values, after, strict=True))
            ]
        return values[loop.place]

    def _turn(self, values: list[Range], loop: Loop) -> list[Range]:
        inner = _Analysis(self.graph, dict(zip(loop.arguments, values, strict=True)))
        after = [inner.range_of(each) for each in loop.results]
        return [joined(*pair) for pair in zip(values, after, strict=True)]
