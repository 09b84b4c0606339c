"""Where `--set KEY=A,B` means several values, and which.

A comma outside of brackets, braces and quotes parts values. No key that is a number, a word of a
list or a name of a stage can hold one; what may are names of files (`model`, `custom_objects`,
`data.path`, `teacher`, `student`, `against` of a gate) and patterns of layers, which are lists and
stand in brackets. A file whose name has a comma is one value if it is there, or in quotes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shrink.base.errors import Position, RecipeError
from shrink.model.reference import exists, expand_user

_CLOSING = {"[": "]", "{": "}"}
_QUOTES = "\"'"
_NAMES_FILE = ("model", "custom_objects", "path", "teacher", "student", "against")
"""Last names of the keys that hold a file's."""


def is_swept(text: str, here: Path) -> bool:
    """Whether `KEY=VALUE` holds several values.

    Args:
        text: of a `--set`.
        here: the folder of the recipe, in which a file may be, or in the current one.
    """
    key, _, value = text.partition("=")
    if len(list(_parts(value))) < 2:
        return False
    if key.strip().rpartition(".")[2] not in _NAMES_FILE:
        return True
    path = value.strip().rpartition(":")[0] or value.strip()
    names = {value.strip(), path}
    return not any(exists(folder / expand_user(n)) for n in names for folder in (Path.cwd(), here))


def values_of(text: str) -> list[str]:
    """Return the values of `KEY=A,B` as they were written.

    Raises:
        RecipeError: one of them is empty.
    """
    parts = [part.strip() for part in _parts(text.partition("=")[2])]
    if not all(parts):
        raise RecipeError(
            "a value between commas is empty",
            position=Position(f"--set {text}", 0, 0),
            hint="a comma parts the values of a sweep; text with a comma stands in quotes, and a "
            "list in brackets",
        )
    return parts


def _parts(text: str) -> Iterator[str]:
    """Yield what commas outside of brackets, braces and quotes part.

    As for the YAML reader, these count only where a value begins with them.
    """
    begin = index = 0
    while index < len(text):
        if not text[begin:index].strip() and text[index] in (*_QUOTES, *_CLOSING):
            index = _end(text, index)
        elif text[index] == ",":
            yield text[begin:index]
            begin = index = index + 1
        else:
            index += 1
    yield text[begin:]


def _end(text: str, begin: int) -> int:
    """Return where a bracket, a brace or a quote is closed, the text's end where it is not."""
    open_: list[str] = []
    quote = ""
    for index in range(begin, len(text)):
        character = text[index]
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES and text[index - 1 : index] in ("", *"[{,: ="):
            quote = character
        elif character in _CLOSING:
            open_.append(_CLOSING[character])
        elif open_ and character == open_[-1]:
            open_.pop()
        if not quote and not open_:
            return index + 1
    return len(text)
