"""From a point of the space to a recipe, and to the plan of its run."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shrink.base.foreign import Json, JsonObject
from shrink.recipe.load import LoadedRecipe, RawRecipe, validated
from shrink.recipe.overrides import Override, apply_override
from shrink.recipe.plan import Plan, build_plan
from shrink.search.rungs import shortened
from shrink.search.space import CHAIN, Settings, Space
from shrink.search.warm import WARM, with_start

_CONTROL = "distill.control"


@dataclass(frozen=True)
class Candidates:
    """The recipes that the points of a space stand for.

    Attributes:
        raw: the recipe that they vary, without its `search`.
        source: its file, or what stands for one.
        space: what is varied.
    """

    raw: RawRecipe
    source: Path
    space: Space

    def plan(self, settings: Settings, *, gated: bool = False, share: float = 1.0) -> Plan:
        """Return the plan of a point.

        Args:
            settings: of the point.
            gated: whether it has the recipe's gates: they are of test examples.
            share: of its epochs and calibration examples.

        Raises:
            ShrinkError: the settings make no legal recipe.
        """
        if share == 1:
            return build_plan(self._loaded(settings, gated))
        cold = {key: value for key, value in settings.items() if key != WARM}
        whole = build_plan(self._loaded(cold, gated))
        return build_plan(self._loaded(settings, gated, whole, share))

    @property
    def leaves_out_control(self) -> bool:
        """Whether a stage asks for `distill.control`, which no point of a search has."""
        stages = [*self.raw.value["stages"]]
        stages += [one for chain in self.space.chains for one in chain.stages or ()]
        varied = any(_CONTROL in chain.dimensions for chain in self.space.chains)
        return varied or any(_distilling(one).get("control") for one in stages)

    def baseline(self) -> Plan:
        """Return a plan that begins with the baseline of all points."""
        chain = self.space.chains[0]
        first = {CHAIN: chain.name} if chain.name else {}
        return self.plan({**first, **(chain.first[0] if chain.first else {})})

    def _loaded(
        self, settings: Settings, gated: bool, whole: Plan | None = None, share: float = 1.0
    ) -> LoadedRecipe:
        mine, chain = self.raw.copy(), self.space.chain(settings)
        gates = mine.value.pop("gates", None) or {}
        if gated and gates:
            lost = self.gates_without_stage(settings)
            mine.value["gates"] = {n: one for n, one in gates.items() if n not in lost}
        if chain.stages is not None:
            mine.value["stages"] = copy.deepcopy(list(chain.stages))
            for path in [p for p in mine.positions if p[:1] == ("stages",) and len(p) > 1]:
                del mine.positions[path]
        for key, value in settings.items():
            if key not in (CHAIN, WARM):
                apply_override(_override(key, value), mine.value, mine.positions)
        mine.value["stages"] = copy.deepcopy(mine.value["stages"])  # the recipe's own stay
        for stage in mine.value["stages"]:
            _distilling(stage).pop("control", None)  # it is measured on test examples
        stages = given = mine.value["stages"]
        if whole is not None:
            stages = shortened(given, whole, share)
        mine.value["stages"] = with_start(stages, given, settings)
        return validated(mine, self.source)

    def check_gates(self) -> None:
        """Refuse gates that no run could be judged by.

        Raises:
            RecipeError: of the recipe as it is written.
        """
        if self.raw.value.get("gates"):
            build_plan(validated(self.raw.copy(), self.source))

    def gates_without_stage(self, settings: Settings) -> tuple[str, ...]:
        """Return the names of the gates on a stage that a point does not have."""
        names = {step.name for step in self.plan(settings).steps}
        return tuple(
            name
            for name, gate in (self.raw.value.get("gates") or {}).items()
            if isinstance(gate, dict) and gate.get("stage") not in (None, *names)
        )

    def identity(self, more: Mapping[str, Json]) -> str:
        """Return a hash of what is searched: of the recipe, the space, and more."""
        chains = [
            [one.name, list(one.stages or ()), {k: repr(v) for k, v in one.dimensions.items()}]
            for one in self.space.chains
        ]
        text = json.dumps([self.raw.value, chains, dict(more)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


def _override(key: str, value: Json) -> Override:
    return Override(tuple(key.split(".")), value, f"{key}={json.dumps(value)}")


def _distilling(stage: Json) -> JsonObject:
    """Return the section of a `distill` stage, as a recipe has it; nothing of other stages."""
    found = stage.get("distill") if isinstance(stage, dict) else None
    return found if isinstance(found, dict) else {}
