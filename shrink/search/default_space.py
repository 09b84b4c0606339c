"""The space that a search varies where the recipe names none: chains of stages, and their sizes.

Stages that train a baseline stay as the recipe has them. What follows is varied: whether a smaller
student is distilled, whether channels are pruned and in which order, how much is left, how the
budget is shared between layers, whether weights are left out as zeros, the scheme, and, where an
arena is limited, whether the file is compacted. Epochs, optimizers, and what else the recipe says
of a stage are taken from its stage of that kind.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shrink.base.errors import RecipeError, hint_for
from shrink.base.foreign import Json, JsonObject
from shrink.recipe.load import RawRecipe
from shrink.recipe.overrides import SECTIONS, stage_names
from shrink.recipe.search_config import Range
from shrink.search.goal import ARENA, Goal
from shrink.search.space import Chain, Choice, Dimension, Interval, Settings, Space

AS_WRITTEN = "recipe"
"""The chain of the recipe as it stands."""
WIDTH, LEFT = "distill.student.width", "prune.parameters"
SPARSITY, SCHEME, ALLOCATION = "prune.sparsity", "quantize.scheme", "prune.allocation"
_WIDTHS = Interval(0.2, 1.0, 0.05)
_LEFT = Interval(0.1, 0.9, 0.05)
_SPARSITIES = Interval(0.6, 0.95, 0.05)
_ALLOCATIONS = Choice(("sensitivity", "uniform"))
_IN_MICRO = ("static_wi8_ai8",)
_IN_LITERT = ("static_wi8_ai8", "dynamic_wi4_afp32")
_COMPACT: JsonObject = {"compact": {}}
_KEPT = {"epochs", "training", "temperature", "alpha", "loss"}
"""Keys of the recipe's own stage that every chain takes over."""
_EPOCHS = {"distill": 20, "prune": 5}


@dataclass(frozen=True)
class Known:
    """What a default space is made from.

    Attributes:
        stages: of the recipe, as it has them; empty for a model by itself.
        builds: whether the model is built anew, so that the first stage trains it.
        prunable: whether channels can be removed; so can they for a student.
    """

    stages: Sequence[JsonObject]
    builds: bool
    prunable: bool = True


def default_space(known: Known, goal: Goal) -> Space:
    """Return the chains, those that are likely best first.

    Args:
        known: of model and recipe.
        goal: limits, of which one on the arena asks for schemes that a microcontroller runs.
    """
    in_micro = ARENA in goal.limits
    base = tuple(known.stages[:1]) if known.builds else ()
    own = _Own(known.stages[len(base) :])
    quantize, compact = own.stage("quantize"), (_COMPACT,) if in_micro else ()
    schemes = Choice(_IN_MICRO if in_micro else _IN_LITERT)
    quantize["quantize"].pop("scheme", None)
    chains: list[Chain | None] = [_as_written(known, base, own)]
    distill, prune = own.distill(inherits=not known.builds), own.prune()
    if known.prunable:
        both: dict[str, Dimension] = {WIDTH: _WIDTHS, SCHEME: schemes}
        cut: dict[str, Dimension] = {LEFT: _LEFT, ALLOCATION: _ALLOCATIONS, SCHEME: schemes}
        chains += [
            _chain(base, (distill, quantize, *compact), both, _begin({WIDTH: (0.35, 0.25, 0.5)})),
            _chain(
                base,
                (distill, prune, quantize, *compact),
                {**both, **cut},
                _begin({WIDTH: (0.5, 0.5), LEFT: (0.5, 0.3)}),
            ),
            _chain(
                base,
                (prune, quantize, *compact),
                cut,
                _begin({LEFT: (0.5, 0.25) * 2, ALLOCATION: _each_twice(_ALLOCATIONS)}),
            ),
            _chain(
                base,
                (own.prune(untrained=True), own.distill(scaled=False), quantize, *compact),
                cut,
                _begin({LEFT: (0.25,)}),
                name="prune-then-distill-quantize",
            ),
        ]
    if not in_micro:
        zeros: dict[str, Dimension] = {SPARSITY: _SPARSITIES, SCHEME: Choice(_IN_MICRO)}
        left_out = copy.deepcopy(quantize)
        left_out["quantize"]["sparse"] = True
        chains.append(
            _chain(
                base,
                (distill, own.sparsify(), left_out),
                {WIDTH: _WIDTHS, **zeros},
                _begin({WIDTH: (0.5,), SPARSITY: (0.8,)}),
                name="distill-sparsify-quantize",
            )
        )
    every = [{SCHEME: one} for one in schemes.values]
    chains.append(_chain(base, (quantize, *compact), {SCHEME: schemes}, every))
    return Space(tuple(one for one in chains if one is not None))


def given_space(space: Mapping[str, Range | Sequence[object]], raw: RawRecipe) -> Space:
    """Return the space that a recipe names, over keys of its own stages.

    Raises:
        RecipeError: a key that the recipe does not have.
    """
    dimensions: dict[str, Dimension] = {}
    for key, values in space.items():
        if isinstance(values, Range):
            dimensions[key] = Interval(values.low, values.high, values.step, values.log)
        else:
            dimensions[key] = Choice(tuple(values))
        section = key.partition(".")[0]
        known = [*SECTIONS, *stage_names(raw.value.get("stages"))]
        if section not in known or section in ("name", "stages", "gates"):
            raise RecipeError(
                f"no section or stage to be searched is called {section!r}",
                position=raw.position("search", "space", key),
                hint=hint_for(section, known),
            )
    return Space((Chain("", None, dimensions, ({},)),))


class _Own:
    """The recipe's stages after its baseline, by kind."""

    def __init__(self, stages: Sequence[JsonObject]) -> None:
        self.stages = [(kind, dict(s or {})) for one in stages for kind, s in one.items()]

    def settings(self, kind: str) -> JsonObject:
        """Return what the recipe says of the first stage of a kind; empty without one."""
        return copy.deepcopy(next((s for k, s in self.stages if k == kind), {}))

    def stage(self, kind: str) -> JsonObject:
        """Return the recipe's stage of a kind, or one with all defaults."""
        return {kind: _without_links(self.settings(kind))}

    def _taught(self, kind: str) -> JsonObject:
        found = {k: v for k, v in self.settings(kind).items() if k in _KEPT}
        if not found.get("epochs"):
            found["epochs"] = _EPOCHS[kind]
        return found

    def distill(self, scaled: bool = True, inherits: bool = False) -> JsonObject:
        """Return a distillation of a narrower student, or of the stage before it."""
        found = self._taught("distill")
        if scaled:
            student = self.settings("distill").get("student")
            kept = dict(student) if isinstance(student, dict) else {}
            inherit = {"inherit": True} if inherits else {}
            found["student"] = {**inherit, **kept, "width": kept.get("width", 0.5)}
        return {"distill": found}

    def prune(self, untrained: bool = False) -> JsonObject:
        """Return a removal of channels that solves for the kernels which read the others."""
        found = {k: v for k, v in self._taught("prune").items() if k in ("epochs", "training")}
        if untrained:
            found = {"epochs": 0}
        taught = {} if untrained else {"teacher": "self"}
        fixed = {"method": "channels", "importance": "least_squares", "parameters": 0.5}
        return {"prune": {**found, **fixed, "allocation": "sensitivity", **taught}}

    def sparsify(self) -> JsonObject:
        """Return a pruning of single weights."""
        found = {k: v for k, v in self._taught("prune").items() if k in ("epochs", "training")}
        return {"prune": {**found, "method": "magnitude", "sparsity": 0.8}}


def _without_links(settings: Mapping[str, Json]) -> JsonObject:
    return {key: value for key, value in settings.items() if key not in ("name", "from")}


def _as_written(known: Known, base: Sequence[JsonObject], own: _Own) -> Chain | None:
    """Return the recipe as it stands, the point to begin with; None where it has no chain."""
    if not own.stages:
        return None
    return Chain(AS_WRITTEN, tuple(known.stages), {}, ({},))


def _chain(
    base: Sequence[JsonObject],
    stages: Sequence[JsonObject],
    dimensions: Mapping[str, Dimension],
    first: Sequence[Settings],
    name: str = "",
) -> Chain:
    kinds = "-".join(kind for one in stages for kind in one)
    whole = tuple({**_middle(dimensions), **one} for one in first)
    return Chain(name or kinds, (*base, *stages), dimensions, whole)


def _middle(dimensions: Mapping[str, Dimension]) -> dict[str, Json]:
    """Return the first value of each list, for what a point to begin with does not say."""
    return {k: one.values[0] for k, one in dimensions.items() if isinstance(one, Choice)}


def _each_twice(choice: Choice) -> list[Json]:
    return [value for value in choice.values for _ in range(2)]


def _begin(values: Mapping[str, Sequence[Json]]) -> list[Settings]:
    """Return points from columns of values."""
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
