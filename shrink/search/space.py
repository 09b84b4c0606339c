"""The search space: chains of stages, and for each the keys that are varied with their values.

A recipe names its own space over the keys of its stages (`given_space`). Without one the space is
built from the model (`default_space`): whether a smaller student is distilled, channels or single
weights are pruned, how much is left and how layers share it, and the quantization scheme. A stage
that trains the baseline stays as the recipe has it; epochs, optimizers and the rest of a stage are
those of the recipe's stage of that kind.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from shrink.base.errors import RecipeError, hint_for
from shrink.base.foreign import Json, JsonObject
from shrink.recipe.load import RawRecipe
from shrink.recipe.overrides import SECTIONS, stage_names
from shrink.recipe.search_config import Range

CHAIN = "chain"
"""The setting that names a chain of stages; no recipe has such a key."""
Settings = Mapping[str, Json]


Dimension = Range | Sequence[Json]
"""The values of a key: a range of numbers, whole where both ends are, or a list of any kind."""


def _drawn(values: Dimension, random: Random) -> Json:
    """Return one of the values of a dimension."""
    if not isinstance(values, Range):
        return random.choice(values)
    low, high, step = values.low, values.high, values.step
    ends_are_whole = isinstance(low, int) and isinstance(high, int)
    is_whole = ends_are_whole and float(step or 1).is_integer()
    if values.log:
        number = math.exp(random.uniform(math.log(low), math.log(high)))
    elif is_whole or step is not None:
        number = low + (step or 1) * random.randint(0, int((high - low) / (step or 1) + 1e-9))
    else:
        number = random.uniform(low, high)
    if is_whole:
        return round(number)
    return round(number, 10) if step else float(f"{number:.4g}")


@dataclass(frozen=True)
class StageChain:
    """Stages, and what is varied of them.

    Attributes:
        name: of the chain; empty for the recipe's own stages.
        stages: as a recipe has them; None for the recipe's own.
        dimensions: by the recipe's keys.
        first: settings to try before others.
    """

    name: str
    stages: tuple[JsonObject, ...] | None
    dimensions: Mapping[str, Dimension]
    first: tuple[Settings, ...] = ()


@dataclass(frozen=True)
class Space:
    """The chains of stages that a search tries; at least one."""

    chains: tuple[StageChain, ...]

    def chain(self, settings: Settings) -> StageChain:
        """Return the chain of a trial."""
        name = settings.get(CHAIN, self.chains[0].name)
        return next(one for one in self.chains if one.name == name)

    def random(self, seed: int) -> Iterator[dict[str, Json]]:
        """Yield settings at random, without end."""
        random = Random(seed)
        while True:
            chain = random.choice(self.chains)
            named = {CHAIN: chain.name} if chain.name else {}
            yield {**named, **{key: _drawn(one, random) for key, one in chain.dimensions.items()}}

    def first(self) -> Iterator[dict[str, Json]]:
        """Yield the settings to try before others, one of each chain in turn."""
        for turn in itertools.zip_longest(*(chain.first for chain in self.chains)):
            for chain, settings in zip(self.chains, turn, strict=True):
                if settings is not None:
                    named = {CHAIN: chain.name} if chain.name else {}
                    yield {**named, **settings}


def settings_text(settings: Settings) -> str:
    """Return settings for people: `distill-quantize, distill.student.width = 0.35`."""
    rest = [f"{key} = {value}" for key, value in settings.items() if key != CHAIN]
    name = [str(settings[CHAIN])] if CHAIN in settings else []
    return ", ".join([*name, *rest]) or "the recipe as it is"


def given_space(space: Mapping[str, Dimension], raw: RawRecipe) -> Space:
    """Return the space that a recipe names, over keys of its own stages.

    Raises:
        RecipeError: a key that the recipe does not have.
    """
    for key in space:
        section = key.partition(".")[0]
        known = [*SECTIONS, *stage_names(raw.value.get("stages"))]
        if section not in known or section in ("name", "stages", "gates"):
            raise RecipeError(
                f"{section!r} is not a section or stage that can be varied",
                position=raw.position("search", "space", key),
                hint=hint_for(section, known),
            )
    return Space((StageChain("", None, space, ({},)),))


AS_WRITTEN = "recipe"
"""The chain of the recipe as it stands."""
WIDTH, LEFT = "distill.student.width", "prune.parameters"
SPARSITY, SCHEME, ALLOCATION = "prune.sparsity", "quantize.scheme", "prune.allocation"
_WIDTHS = Range(low=0.2, high=1.0, step=0.05)
_LEFT = Range(low=0.1, high=0.9, step=0.05)
_SPARSITIES = Range(low=0.6, high=0.95, step=0.05)
_ALLOCATIONS = ("sensitivity", "uniform")
_STATIC = ("static_wi8_ai8",)
_ALL_SCHEMES = ("static_wi8_ai8", "dynamic_wi4_afp32")
_KEPT = {
    "distill": {"epochs", "training", "temperature", "alpha", "loss"},
    "prune": {"epochs", "training"},
}
"""Keys of the recipe's own stage that every chain takes over."""
_EPOCHS = {"distill": 20, "prune": 5}


def default_space(stages: Sequence[JsonObject], builds: bool, in_micro: bool) -> Space:
    """Return the chains, in the order of what usually works best.

    Args:
        stages: of the recipe.
        builds: whether the model is built anew, so that the first stage trains it.
        in_micro: whether TFLite Micro runs the result: it has no 4-bit weights and no sparse ones,
            and `compact` makes the arena smaller.
    """
    base = tuple(stages[:1]) if builds else ()
    own: dict[str, JsonObject] = {}
    for one in stages[len(base) :]:
        for kind, settings in one.items():
            own.setdefault(kind, copy.deepcopy(dict(settings or {})))

    def trained(kind: str, **settings: Json) -> JsonObject:
        kept = {key: value for key, value in own.get(kind, {}).items() if key in _KEPT[kind]}
        return {kind: {**kept, "epochs": kept.get("epochs") or _EPOCHS[kind], **settings}}

    def chain(
        stages: Sequence[JsonObject],
        dimensions: Mapping[str, Dimension],
        first: Sequence[Settings],
        name: str = "",
    ) -> StageChain:
        name = name or "-".join(kind for one in stages for kind in one)
        lists = {k: one[0] for k, one in dimensions.items() if not isinstance(one, Range)}
        return StageChain(
            name, (*base, *stages), dimensions, tuple({**lists, **one} for one in first)
        )

    end: list[JsonObject] = [{"compact": {}}] if in_micro else []
    schemes = _STATIC if in_micro else _ALL_SCHEMES
    left_out = ("name", "from", "scheme")
    quantize = {"quantize": {k: v for k, v in own.get("quantize", {}).items() if k not in left_out}}
    student = own.get("distill", {}).get("student")
    width = {"width": 0.5, **(student if isinstance(student, dict) else {})}
    distill = trained("distill", student={**({} if builds else {"inherit": True}), **width})
    # the kernels that remain are solved by least squares
    channels: JsonObject = {"method": "channels", "importance": "least_squares", "parameters": 0.5}
    channels["allocation"] = "sensitivity"
    narrow: dict[str, Dimension] = {WIDTH: _WIDTHS, SCHEME: schemes}
    cut: dict[str, Dimension] = {LEFT: _LEFT, ALLOCATION: _ALLOCATIONS, SCHEME: schemes}
    prune = trained("prune", **channels, teacher="self")
    chains = [StageChain(AS_WRITTEN, tuple(stages), {}, ({},))] if own else []
    chains += [
        chain([distill, quantize, *end], narrow, [{WIDTH: width} for width in (0.35, 0.25, 0.5)]),
        chain(
            [distill, prune, quantize, *end],
            {**narrow, **cut},
            [{WIDTH: 0.5, LEFT: left} for left in (0.5, 0.3)],
        ),
        chain(
            [prune, quantize, *end],
            cut,
            [{LEFT: left, ALLOCATION: one} for one in _ALLOCATIONS for left in (0.5, 0.25)],
        ),
        chain(
            [{"prune": {"epochs": 0, **channels}}, trained("distill"), quantize, *end],
            cut,
            [{LEFT: 0.25}],
            "prune-then-distill-quantize",
        ),
    ]
    if not in_micro:
        sparse = {"quantize": {**quantize["quantize"], "sparse": True}}
        chains.append(
            chain(
                [distill, trained("prune", method="magnitude", sparsity=0.8), sparse],
                {WIDTH: _WIDTHS, SPARSITY: _SPARSITIES, SCHEME: _STATIC},
                [{WIDTH: 0.5, SPARSITY: 0.8}],
                "distill-sparsify-quantize",
            )
        )
    every = [{SCHEME: one} for one in schemes]
    chains.append(chain([quantize, *end], {SCHEME: schemes}, every))
    return Space(tuple(chains))
