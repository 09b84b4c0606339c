"""User metrics: functions of Python files, with their direction and unit.

Reports, gates and renderings of saved reports know a metric by its key alone. So the key of such a
function ends in what tells its direction and unit, as scikit-learn's names do: `_score` and
`_accuracy` for what is better when higher, `_error`, `_loss` and `_error_rate` when lower.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from shrink.base.errors import hint_for
from shrink.base.functions import of_file
from shrink.base.metrics import FUNCTION_ENDINGS, metric_of, named_after

Better = Literal["higher", "lower"]
FunctionUnit = Literal["none", "fraction"]

_ENDINGS: Mapping[tuple[Better, FunctionUnit], str] = {
    ("higher", "none"): "_score",
    ("higher", "fraction"): "_accuracy",
    ("lower", "none"): "_loss",
    ("lower", "fraction"): "_error_rate",
}
"""What is added to a function's name that does not end in its direction and unit."""
_ENTRY = re.compile(r"(.+?)(?:\(better=(\w+), unit=(\w+)\))?")
_KEYS = ("name", "better", "unit")


@dataclass(frozen=True)
class UserMetric:
    """A user's function as a metric.

    Attributes:
        file: a Python file.
        function: its name in the file.
        better: which values are.
        unit: a fraction is of 0 to 1, and shown in percent.
    """

    file: str
    function: str
    better: Better
    unit: FunctionUnit

    @property
    def key(self) -> str:
        """What it is called in gates and reports."""
        by_name = named_after(self.function)
        says_so = self.function.endswith(tuple(FUNCTION_ENDINGS))
        if says_so and by_name == (self.better == "higher", self.unit):
            return self.function
        return f"{self.function}{_ENDINGS[self.better, self.unit]}"

    @property
    def entry(self) -> str:
        """What a resolved recipe has of it."""
        return f"{self.file}:{self.function}(better={self.better}, unit={self.unit})"


def user_metric_of(entry: str) -> UserMetric | None:
    """Return the function that an entry of `task.metrics` names; None for a metric of shrink's.

    Raises:
        ValueError: its direction or unit is none, or its name is that of a metric.
    """
    found = _ENTRY.fullmatch(entry)
    named = None if found is None else of_file(found[1])
    if found is None or named is None:
        return None
    return _user_metric(*named, found[2], found[3])


def user_metric_of_mapping(settings: Mapping[str, object]) -> UserMetric | None:
    """Return the function of a mapping, `{name: mine.py:cost, better: lower}`; None for others.

    Raises:
        ValueError: another key, or what `user_metric_of` refuses.
    """
    name = settings.get("name")
    named = of_file(name) if isinstance(name, str) else None
    if named is None:
        return None
    for key in settings:
        if key not in _KEYS:
            raise ValueError(f"{name}: unknown key {key!r}; {hint_for(key, _KEYS)}")
    return _user_metric(*named, settings.get("better"), settings.get("unit"))


def key_of_entry(entry: str) -> str:
    """Return what a metric of `task.metrics` is called in gates and reports."""
    found = user_metric_of(entry)
    return entry if found is None else found.key


def _user_metric(file: str, function: str, better: object, unit: object) -> UserMetric:
    larger, by_name = named_after(function)
    says_so = function.endswith(tuple(FUNCTION_ENDINGS))
    if better is None:
        better = "higher" if larger or not says_so else "lower"
    if unit is None:
        unit = by_name if says_so else "none"
    if better not in get_args(Better):
        raise ValueError(f"{function}.better: must be higher or lower, not {better!r}")
    if unit not in get_args(FunctionUnit):
        raise ValueError(f"{function}.unit: must be none or fraction, not {unit!r}")
    way: Better = "higher" if better == "higher" else "lower"
    shown: FunctionUnit = "fraction" if unit == "fraction" else "none"
    metric = UserMetric(file, function, way, shown)
    if metric_of(metric.key) is not None:
        raise ValueError(
            f"the function {function} would be called {metric.key}, which is a metric of shrink; "
            "rename the function"
        )
    return metric
