"""The key `data.slices` of a recipe: how test examples are divided into slices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from shrink.base.fields import Config
from shrink.base.foreign import JsonObject
from shrink.contract.slices import BY_CLASS

SlicingKind = Literal["column", "folder", "pattern", "function"]
_KINDS: tuple[SlicingKind, ...] = ("column", "folder", "pattern", "function")


class SliceConfig(Config):
    """One way to divide the test examples; exactly one of column, folder, pattern, function.

    A text is the name of a column, or of a function if it contains `.py:`.
    """

    name: Annotated[str, Field(min_length=1, pattern=r"^[^\n,:=]+$")] | None = None
    """Name in the report; by default that of the column or function."""
    column: Annotated[str, Field(min_length=1)] | None = None
    """A column of the CSV file, an array of the .npz or HDF5 file, or a key of the mapping that
    a Python function returns as input: a value for each example."""
    folder: int | None = None
    """Sources of files: the folder at this level below data.path; 1 is the first, -1 the folder
    that holds the file."""
    pattern: Annotated[str, Field(min_length=1)] | None = None
    """Sources of files: a regular expression that is searched in the path below data.path; the
    slice is its first group, or the whole match."""
    function: Annotated[str, Field(pattern=r"\.py:[A-Za-z_]\w*$")] | None = None
    """`file.py:function`, called with inputs and targets of some examples; returns a text or a
    number for each."""
    edges: Annotated[tuple[float, ...], Field(strict=False, min_length=1)] | None = None
    """Numbers: where to divide them, ascending; by default more than 12 different numbers are
    divided at the quartiles of the test examples."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonObject:
        """Return the schema of the mapping, or of a text."""
        return {"anyOf": [handler(schema), {"type": "string", "minLength": 1}]}

    @model_validator(mode="before")
    @classmethod
    def _as_mapping(cls, entry: object) -> object:
        """Return the mapping that a text stands for."""
        if not isinstance(entry, str):
            return entry
        return {"function" if ".py:" in entry else "column": entry}

    @model_validator(mode="after")
    def _check(self) -> SliceConfig:
        named = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(named) != 1:
            given = " and ".join(named) or "none of them"
            raise ValueError(f"give one of column, folder, pattern and function, not {given}")
        if self.folder == 0:
            raise ValueError("folder: levels are 1, 2, ... from data.path, or -1, -2, ... back")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern: no regular expression: {error}") from error
        if self.edges is not None and list(self.edges) != sorted(set(self.edges)):
            raise ValueError("edges: numbers in ascending order, each once")
        if self.edges is not None and self.kind in ("folder", "pattern"):
            raise ValueError("edges divide numbers; folders and patterns give texts")
        return self

    @property
    def kind(self) -> SlicingKind:
        """Which of its keys says where the values come from."""
        return next(kind for kind in _KINDS if getattr(self, kind) is not None)

    @property
    def called(self) -> str:
        """What the report calls it."""
        if self.name is not None:
            return self.name
        own = self.column or (self.function or "").rpartition(":")[2]
        return re.sub(r"[\n,:=]", " ", own) or self.kind

    @property
    def file(self) -> Path | None:
        """The file of its function; None without one."""
        return None if self.function is None else Path(self.function.rpartition(":")[0])


Slices = Annotated[tuple[SliceConfig, ...], Field(strict=False, min_length=1)]
"""Some ways to divide the test examples."""


def check_slices(
    slices: Sequence[SliceConfig], only_with: Mapping[str, Sequence[str]], source: str
) -> None:
    """Refuse what a source does not have, and two slicings of one name.

    Args:
        slices: of the recipe.
        only_with: by kind of slicing the sources that have it, where this one does not.
        source: its name.

    Raises:
        ValueError: a key that goes with other sources, a name that is taken.
    """
    seen = {BY_CLASS}
    for one in slices:
        if one.called in seen:
            taken = "is always there" if one.called == BY_CLASS else "is there twice"
            raise ValueError(f"slices: {one.called} {taken}; give it another name")
        seen.add(one.called)
        if others := only_with.get(one.kind):
            raise ValueError(
                f"slices: source {source} has no {'columns' if one.kind == 'column' else 'paths'}; "
                f"{one.kind} goes with {', '.join(others)}, and file.py:function with all"
            )
