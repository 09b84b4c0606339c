"""PyYAML's parser, by either of its engines, as a stream of small events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from shrink.base.errors import Position, RecipeError

_LINE_BREAK = re.compile(r"\r\n|\r|\n")

Kind = Literal["document", "mapping", "sequence", "scalar", "alias", "end"]


@dataclass(slots=True)
class Event:
    """What the parser found, and where; `plain` scalars have neither quotes nor a block style."""

    kind: Kind
    position: Position
    text: str = ""
    plain: bool = False
    anchor: str | None = None
    tag: str | None = None


_KINDS: dict[str, Kind] = {
    "DocumentStartEvent": "document",
    "MappingStartEvent": "mapping",
    "SequenceStartEvent": "sequence",
    "ScalarEvent": "scalar",
    "AliasEvent": "alias",
    "MappingEndEvent": "end",
    "SequenceEndEvent": "end",
}


def events(text: str, name: str) -> Iterator[Event]:
    """Yield what the parser finds in `text`; tags, anchors and scalars are still unjudged.

    Raises:
        RecipeError: a syntax error, with its position and PyYAML's problem in plain words.
    """
    # Imported late: PyYAML costs 50 ms, and a command without a recipe does not need it.
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    position = Position(name, 1, 1)
    try:
        for event in yaml.parse(text, Loader=loader):
            kind = _KINDS.get(type(event).__name__)
            if kind is not None:
                yield (found := _translated(kind, event, name))
                position = found.position
    except yaml.YAMLError as error:
        raise _syntax_error(error, text, name) from error
    except ValueError as error:  # the Python engine, on an escape beyond Unicode
        raise RecipeError(f"not valid YAML: {_ESCAPE}", position=position) from error


def _translated(kind: Kind, event: Any, name: str) -> Event:
    position = Position(name, event.start_mark.line + 1, event.start_mark.column + 1)
    anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
    if kind != "scalar":
        return Event(kind, position, anchor=anchor, tag=tag)
    return Event(kind, position, event.value, event.implicit[0], anchor, tag)


_INDENTATION = "this does not fit the lines above it: check the indentation"
_ESCAPE = (
    "a backslash in double quotes that starts no valid escape: double it, or use single quotes"
)
_HEADER = "text after the | or > that starts a block of text: quote the text"
_TAG = "an ! that starts a tag: recipes have none, and text that starts so needs quotes"
_PLAIN_WORDS = {
    "mapping values are not allowed": "a ':' where no key can stand: wrong indentation, or text "
    "with a colon that needs quotes",
    "sequence entries are not allowed": "a '-' where no list item can stand",
    "',' or ']'": "a list [...] lacks a comma or its closing bracket",
    "',' or '}'": "a mapping {...} lacks a comma or its closing brace",
    "node content": "a value is missing",
    "unexpected end of stream": "a quote is never closed",
    "expected ':'": "a key without its ':'",
    "<block end>": _INDENTATION,
    "expected key": _INDENTATION,
    "'-' indicator": _INDENTATION,
    "comment or line break": _HEADER,
    "comment or a line break": _HEADER,
    "chomping": _HEADER,
    "alphabetic or numeric": "an & or * without a name: text that starts so needs quotes",
    "mapping keys are not allowed": "a '?' where no key can stand: quote the text",
    "tag URI": _TAG,
    "expected URI": _TAG,
    "expected '>'": _TAG,
    "expected '!'": _TAG,
    "whitespace or line break": _TAG,
    "expected ' '": _TAG,
    "hexdecimal": _ESCAPE,
    "document start": "text after the end of the recipe",
    "escape": _ESCAPE,
}
"""Plain words for a problem that holds the key, in the wording of either engine."""


def _syntax_error(error: Any, text: str, name: str) -> RecipeError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    end = position_after(text, name)
    if mark is None:
        return RecipeError(f"not valid YAML: {error}", position=end)
    position = Position(name, mark.line + 1, mark.column + 1)
    if (position.line, position.column) > (end.line, end.column):
        position = end
    problem = str(error.problem)
    if "cannot start any token" in problem:
        character = _LINE_BREAK.split(text)[mark.line][mark.column : mark.column + 1]
        message = f"{character!r} cannot start a value"
        return RecipeError(message, position=position, hint="put the text in quotes")
    plain = next((words for part, words in _PLAIN_WORDS.items() if part in problem), problem)
    return RecipeError(f"not valid YAML: {plain}", position=position)


def position_after(text: str, name: str) -> Position:
    """Return the position of what follows `text`."""
    lines = _LINE_BREAK.split(text)
    return Position(name, len(lines), len(lines[-1]) + 1)
