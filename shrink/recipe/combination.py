"""One combination of a sweep: its settings as they were written, and the name of its folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shrink.base.foreign import Json
from shrink.base.settings import in_words
from shrink.recipe.overrides import Override

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.+-]+")
_LONGEST_VALUE, _LONGEST_KEY, _LONGEST_NAME = 40, 80, 120
"""Bytes: of a file's name, which has 255 at most, as it is written to the disk."""
_HASH_DIGITS = 8


@dataclass(frozen=True)
class Setting:
    """A key with its value; `path` is where an entry of a matrix has it."""

    override: Override
    path: tuple[str | int, ...] = ()

    @property
    def key(self) -> str:
        """The key: `prune.sparsity`."""
        return self.override.key

    @property
    def text(self) -> str:
        """The value as it was written: `1e-3`."""
        return self.override.written


@dataclass(frozen=True)
class Combination:
    """What tells one run of a sweep from the others.

    Attributes:
        settings: in the order of the sweep's keys.
        is_repeat: whether the last one is the seed of `repeat`.
    """

    settings: tuple[Setting, ...]
    is_repeat: bool = False

    @property
    def texts(self) -> dict[str, str]:
        """The values as they were written, by their keys."""
        return {one.key: one.text for one in self.settings}

    @property
    def own(self) -> dict[str, str]:
        """The same, without the seed of a repeat."""
        kept = self.settings[:-1] if self.is_repeat else self.settings
        return {one.key: one.text for one in kept}

    @property
    def title(self) -> str:
        """The settings for people: `prune.sparsity = 0.3, training.seed = 1`."""
        return in_words(self.texts)

    @property
    def folder(self) -> str:
        """The name of the run folder, the same for the same settings: `prune.sparsity=0.3`.

        A key or value that would lose something of itself in a file's name has a hash of its text.
        What is left is ASCII: its characters are its bytes.
        """
        name = ",".join(
            f"{_file_name(one.key, _LONGEST_KEY)}={_file_name(one.text, _LONGEST_VALUE)}"
            for one in self.settings
        )
        if len(name.encode("ascii")) <= _LONGEST_NAME:
            return name
        return f"{name[:_LONGEST_NAME]}-{_hash(name)}"

    def has(self, settings: Iterable[Setting]) -> bool:
        """Whether it has all of these values."""
        mine = {one.key: one.override.value for one in self.settings}
        return all(one.key in mine and mine[one.key] == one.override.value for one in settings)

    def is_same(self, other: Combination) -> bool:
        """Whether both set the same keys to the same values."""
        return self.has(other.settings) and other.has(self.settings)

    def and_(self, settings: tuple[Setting, ...], *, is_repeat: bool = False) -> Combination:
        """Return it with more settings, which replace those of the same keys."""
        keys = {one.key for one in settings}
        kept = tuple(one for one in self.settings if one.key not in keys)
        return Combination((*kept, *settings), is_repeat)


def written(
    value: Json, path: tuple[str | int, ...], texts: Mapping[tuple[str | int, ...], str]
) -> str:
    """Return a value as a recipe wrote it, lists and mappings on one line.

    Args:
        value: of the recipe.
        path: where it stands.
        texts: of the recipe's scalars.
    """
    if isinstance(value, list):
        items = (written(one, (*path, index), texts) for index, one in enumerate(value))
        return f"[{', '.join(items)}]"
    if isinstance(value, dict):
        pairs = (f"{key}: {written(one, (*path, key), texts)}" for key, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    return texts.get(path) or ("null" if value is None else str(value))


def _file_name(text: str, longest: int) -> str:
    name = _NOT_IN_NAMES.sub("-", text).strip("-")[:longest]
    return name if name == text else "-".join(filter(None, (name, _hash(text))))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
