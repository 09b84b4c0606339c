"""Warm starts: a point that is pruned further than one that was trained goes on from its weights.

What the nearest trained point has left holds all that the new one can keep. So the new one's recipe
has two stages, `prune` as that point has it and `prune` of the rest: the first comes from the stage
store in the search, and `shrink run` of the recipe makes both, and the same bytes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence

from shrink.base.foreign import Json, JsonObject
from shrink.contract.searched import Trial
from shrink.search.space import Settings

WARM = "warm_start"
"""The setting that says what share the stage before has left; no recipe has such a key."""
_PRUNE = "prune"
_LEFT = ("parameters", "macs")
_LATER = ("quantize.", "compact.")
"""Keys of stages behind: they change nothing of what is pruned."""
_DIGITS = 4


def warmed(settings: Settings, trials: Sequence[Trial]) -> dict[str, Json]:
    """Return a point's settings with where it starts from.

    Args:
        settings: that a sampler suggests.
        trials: of which one that was trained to its end, with the same settings but more left, is
            gone on from: that with the least. A point that one of them already is stays as it was.
    """
    mine = {key: value for key, value in settings.items() if key != WARM}
    key = next((f"{_PRUNE}.{one}" for one in _LEFT if f"{_PRUNE}.{one}" in mine), None)
    if key is None:
        return mine
    known = next((one for one in trials if _cold(one.settings) == mine), None)
    if known is not None:
        return dict(known.settings)
    left = [
        float(str(one.settings[key]))
        for one in trials
        if one.status == "done" and WARM not in one.settings and _is_alike(one.settings, mine, key)
    ]
    more = [one for one in left if one > float(str(mine[key]))]
    return {**mine, WARM: min(more)} if more else mine


def _cold(settings: Settings) -> dict[str, Json]:
    return {key: value for key, value in settings.items() if key != WARM}


def _is_alike(theirs: Settings, mine: Settings, but: str) -> bool:
    def prunes(one: Settings) -> dict[str, Json]:
        return {k: v for k, v in one.items() if k != but and not k.startswith(_LATER)}

    return but in theirs and prunes(theirs) == prunes(mine)


def with_start(stages: Sequence[Json], whole: Sequence[Json], settings: Settings) -> list[Json]:
    """Return stages with the pruning of the point that is gone on from before their own.

    Args:
        stages: of the recipe.
        whole: the same with all their epochs, as the other point was trained.
        settings: of the point.
    """
    share = settings.get(WARM)
    at = next((n for n, one in enumerate(stages) if _pruning(one) is not None), None)
    if not isinstance(share, int | float) or at is None:
        return [*stages]
    first, second = _pruning(copy.deepcopy(whole[at])), _pruning(copy.deepcopy(stages[at]))
    assert first is not None, "the stage is the same"
    assert second is not None, "the stage was found"
    key = next(one for one in _LEFT if one in second)
    rest = float(str(second[key])) / share
    first[key] = share
    second[key] = math.floor(rest * 10**_DIGITS) / 10**_DIGITS
    return [*stages[:at], {_PRUNE: first}, {_PRUNE: second}, *stages[at + 1 :]]


def _pruning(stage: Json) -> JsonObject | None:
    found = stage.get(_PRUNE) if isinstance(stage, Mapping) else None
    return found if isinstance(found, dict) and found.get("epochs") != 0 else None
