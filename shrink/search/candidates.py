"""Candidates of a search: the recipe that each trial's settings stand for."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrink.base.errors import ModelError, Position, RecipeError
from shrink.base.fields import named_fields
from shrink.base.figures import target_of
from shrink.base.foreign import Json, JsonObject
from shrink.model.reference import parse_model_reference
from shrink.recipe.bundle import bundled_recipes, find_recipe
from shrink.recipe.data_reference import NamedData
from shrink.recipe.load import SEARCH, SWEEPING, RawRecipe, read_raw, validated
from shrink.recipe.overrides import Override, apply_override
from shrink.recipe.plan import Plan, build_plan
from shrink.recipe.search_config import NOT_FLAGS, SearchConfig
from shrink.recipe.single import Sections, single_recipe
from shrink.report.config import Gate
from shrink.run.lineage import named_code
from shrink.search.goal import LATENCY, is_timed, runs_in_micro
from shrink.search.space import CHAIN, Settings, Space, default_space, given_space

_EPOCHS = 20
"""Of a baseline that a function builds, where no recipe says."""
_CONTROL = "distill.control"


@dataclass(frozen=True)
class Candidates:
    """The recipes that the settings of a space stand for.

    Attributes:
        raw: the recipe that they vary, without its `search`.
        source: its file, or what stands for one.
        space: what is varied.
        config: the `search` section.
        gates: of the recipe.
    """

    raw: RawRecipe
    source: Path
    space: Space
    config: SearchConfig
    gates: Mapping[str, Gate]

    @classmethod
    def read(cls, raw: RawRecipe, source: Path, overrides: Sequence[Override]) -> Candidates:
        """Return the candidates of a recipe.

        Args:
            raw: the recipe; changed by the overrides.
            source: its file, or what stands for one.
            overrides: changes of its keys, those of `search` too.

        Raises:
            RecipeError: a key is wrong, or nothing says when the search ends.
        """
        for key in SWEEPING:
            raw.value.pop(key, None)
        for one in overrides:
            apply_override(one, raw.value, raw.positions, SEARCH)
        loaded = validated(raw, source)
        raw.value.pop(SEARCH, None)
        config, gates = loaded.search or SearchConfig(), loaded.recipe.gates
        if config.time is None and config.trials is None:
            raise RecipeError(
                "no stopping criterion",
                subject="--time",
                hint="give --time 30m or --trials 20",
            )
        measures = config.constraints.p50_ms is not None or LATENCY in config.objectives
        if config.latency is not None and not measures:
            raise RecipeError(
                "latency is neither limited nor an objective",
                subject="search.latency.command",
                hint=f"give --latency 5ms, or {LATENCY} among search.objectives",
            )
        if config.space:
            space = given_space(config.space, raw)
        else:
            position = raw.position("model")
            folder = Path(position.file).parent if position.line else Path.cwd()
            model = parse_model_reference(str(raw.value["model"]), folder)
            stages = [one if isinstance(one, dict) else {one: {}} for one in raw.value["stages"]]
            space = default_space(stages, not model.trained, runs_in_micro(config, gates))
        return cls(raw, source, space, config, gates)

    @classmethod
    def of(
        cls,
        model: str | RawRecipe,
        overrides: Sequence[Override],
        data: str | NamedData | None = None,
        custom_objects: Path | None = None,
    ) -> Candidates:
        """Return the candidates of a recipe, or of a model with its data.

        Args:
            model: a recipe, its file, a bundled recipe's name; or a model as the command line
                names it.
            overrides: changes of the recipe's keys, those of `search` too.
            data: of a model; a recipe names its own.
            custom_objects: of a model, likewise.

        Raises:
            ModelError: not a Keras model.
            RecipeError: as `read`, or a recipe comes with data or custom objects.
        """
        if isinstance(model, RawRecipe) or _is_recipe(model):
            for flag, given in (("--data", data), ("--custom-objects", custom_objects)):
                if given is not None:
                    raise RecipeError(
                        "a recipe names this itself",
                        subject=flag,
                        hint="leave it out, or change it by --set",
                    )
            if isinstance(model, RawRecipe):
                return cls.read(model, Path("recipe"), overrides)
            path = find_recipe(model)
            return cls.read(read_raw(path), path, overrides)
        reference = parse_model_reference(model, Path.cwd())
        if reference.form != "keras":
            raise ModelError(
                "a search needs a Keras model, which it can prune and distill",
                subject=reference.path,
                hint="name the .keras or .h5 file that this one was made from",
            )
        train = [] if reference.trained else [{"train": {"epochs": _EPOCHS}}]
        code = None if custom_objects is None else custom_objects.resolve()
        stages: list[JsonObject] = [*train, {"quantize": {}}]
        folder = Path.cwd()
        value = single_recipe("search", model, data, stages, Sections(), folder, code, named_code)
        return cls.read(RawRecipe(value, {}), Path("shrink search"), overrides)

    @property
    def folder(self) -> Path:
        """Where a search writes by default."""
        name = str(self.raw.value.get("name", "search"))
        return Path("runs") / (name if name.startswith("search-") else f"{name}-search")

    @property
    def timed(self) -> bool:
        """Whether the latency of trials is measured."""
        return is_timed(self.config, self.gates)

    def plan(self, settings: Settings, gates: Sequence[str] = ()) -> Plan:
        """Return the plan of a trial.

        Args:
            settings: of the trial.
            gates: the names of the gates that it is checked by.

        Raises:
            RecipeError, ModelError: the settings make no legal recipe.
        """
        mine, chain = self.raw.copy(), self.space.chain(settings)
        written = mine.value.pop("gates", None) or {}
        if kept := {name: one for name, one in written.items() if name in gates}:
            mine.value["gates"] = kept
        if chain.stages is not None:
            mine.value["stages"] = copy.deepcopy(list(chain.stages))
            for path in [p for p in mine.positions if p[:1] == ("stages",) and len(p) > 1]:
                del mine.positions[path]
        for key, value in settings.items():
            if key != CHAIN:
                override = Override(tuple(key.split(".")), value, f"{key}={json.dumps(value)}")
                apply_override(override, mine.value, mine.positions)
        mine.value["stages"] = copy.deepcopy(mine.value["stages"])  # the recipe's own stay
        for stage in mine.value["stages"]:
            _distilling(stage).pop("control", None)  # it is measured on test examples
        return build_plan(validated(mine, self.source))

    def baseline(self) -> Plan:
        """Return a plan that begins with the baseline of all trials."""
        chain = self.space.chains[0]
        first = {CHAIN: chain.name} if chain.name else {}
        return self.plan({**first, **(chain.first[0] if chain.first else {})})

    def check_gates(self) -> None:
        """Refuse gates that no run could be checked by.

        Raises:
            RecipeError: of the recipe as it is written.
        """
        if self.gates:
            build_plan(validated(self.raw.copy(), self.source))

    def gates_of(self, settings: Settings) -> tuple[str, ...]:
        """Return the names of the gates on the run as a whole, or on a stage that a trial has."""
        stages = {step.name for step in self.plan(settings).steps}
        return tuple(n for n, gate in self.gates.items() if gate.stage in (None, *stages))

    def trial_gates(self, settings: Settings) -> tuple[str, ...]:
        """Return the gates that a trial is checked by: no metric of a saved report's test split."""
        return tuple(
            name
            for name in self.gates_of(settings)
            if not (
                self.gates[name].against
                and (target := target_of(name)) is not None
                and target.figure.group == "metrics"
            )
        )

    @property
    def leaves_out_control(self) -> bool:
        """Whether a stage asks for `distill.control`, which no trial has."""
        stages = [*self.raw.value["stages"]]
        stages += [one for chain in self.space.chains for one in chain.stages or ()]
        varied = any(_CONTROL in chain.dimensions for chain in self.space.chains)
        return varied or any(_distilling(one).get("control") for one in stages)

    def identity(self, more: Mapping[str, Json]) -> str:
        """Return a hash of what is searched: of the recipe, the space, and more."""
        chains = [
            [one.name, list(one.stages or ()), {k: repr(v) for k, v in one.dimensions.items()}]
            for one in self.space.chains
        ]
        text = json.dumps([self.raw.value, chains, dict(more)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


def search_overrides(
    given: Mapping[tuple[str, ...], Json], shown: Callable[[str, Json], str]
) -> list[Override]:
    """Return the changes of the `search` section that flags, or keywords, stand for.

    Args:
        given: values by the keys that they set.
        shown: how a name and its value were written, for errors.
    """
    return [
        Override((SEARCH, *keys), given[keys], name, Position(shown(name, given[keys]), 0, 0))
        for name, keys, _ in named_fields(SearchConfig, NOT_FLAGS)
        if given.get(keys) is not None
    ]


def _is_recipe(name: str) -> bool:
    """Whether a word names a recipe, not a model."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or name == "-":
        return True
    return not path.exists() and name in {one.name for one in bundled_recipes()}


def _distilling(stage: Json) -> JsonObject:
    """Return the settings of a `distill` stage; nothing of other stages."""
    found = stage.get("distill") if isinstance(stage, dict) else None
    return found if isinstance(found, dict) else {}
