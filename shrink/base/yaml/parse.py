"""YAML text to plain values with their places, within limits."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from shrink.base.errors import Position, RecipeError, hint_for

if TYPE_CHECKING:
    import yaml

Scalar: TypeAlias = str | int | float | bool | None
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
        for event in _parsed(text, loader):
            kind = _KINDS.get(type(event).__name__)
            if kind is not None:
                yield (found := _translated(kind, event, name))
                position = found.position
    except yaml.YAMLError as error:
        raise _syntax_error(error, text, name) from error
    except ValueError as error:  # the Python engine, on an escape beyond Unicode
        raise RecipeError(f"not valid YAML: {_ESCAPE}", position=position) from error


def _parsed(text: str, loader: Any) -> Iterator[Any]:
    """Yield PyYAML's events.

    libyaml 0.2.6 refuses deep nesting before it tells where it begins; the Python engine goes on.
    """
    import yaml

    told = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            told += 1
            yield event
    except yaml.YAMLError as error:
        if loader is yaml.SafeLoader or "nesting depth" not in str(error):
            raise
        yield from itertools.islice(yaml.parse(text, Loader=yaml.SafeLoader), told, None)


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


def _syntax_error(error: yaml.YAMLError, text: str, name: str) -> RecipeError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    end = position_after(text, name)
    if mark is None:
        return RecipeError(f"not valid YAML: {error}", position=end)
    position = Position(name, mark.line + 1, mark.column + 1)
    if (position.line, position.column) > (end.line, end.column):
        position = end
    problem = str(getattr(error, "problem", error))
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


_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(
    ("false", "False", "FALSE"), False
)
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MOST_DIGITS = 64


def resolve(text: str, position: Position) -> Scalar:
    """Return the value of a plain scalar by the core schema (YAML 1.2.2, section 10.3.2).

    Raises:
        RecipeError: an integer beyond 64 bits, a float beyond double precision, infinity or NaN.
    """
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return _integer(text, position)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise RecipeError(f"{short(text)} is too large for a number", position=position)
        return number
    if _NOT_FINITE.fullmatch(text):
        raise RecipeError(
            f"{text} is not a number that a recipe can use",
            position=position,
            hint="leave the key out for its default",
        )
    return text


def _integer(text: str, position: Position) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    # Python refuses to convert thousands of decimal digits, so the length comes first.
    number = int(text, base) if len(text) <= _MOST_DIGITS else None
    if number is None or not -(2**63) <= number < 2**63:
        raise RecipeError(f"{short(text)} does not fit into 64 bits", position=position)
    return number


def short(text: str, limit: int = 40) -> str:
    """Return `text` quoted, and cut where it is longer than `limit` characters."""
    return repr(text if len(text) <= limit else f"{text[:limit]}…")


MAX_DEPTH = 32
"""The most mappings and lists inside each other."""
MAX_NODES = 100_000
"""The most keys and values, each alias counted as all that it stands for."""


@dataclass(slots=True)
class Node:
    """A value whose aliases still share one node; `size` and `height` count them in full."""

    position: Position
    scalar: Scalar = None
    items: list[Node] | None = None
    entries: dict[str, tuple[Position, Node]] | None = None
    size: int = 1
    height: int = 0
    text: str = ""
    """A scalar as it was written, without quotes."""


@dataclass
class Composer:
    """Builds nodes from events, and refuses what a recipe does not have.

    Args:
        events: of the whole text.
        name: what stands for the file in positions.

    Raises:
        RecipeError: tags, merge keys, keys that are no text or given twice, aliases that are
            undefined or recursive, a second document, more than `MAX_DEPTH` or `MAX_NODES`.
    """

    events: Iterator[Event]
    name: str
    anchors: dict[str, Node | None] = field(default_factory=dict)
    """The value of each anchor; None as long as it is not complete."""

    def document(self) -> Node:
        """Return the root of the only document; null where there is none."""
        if next(self.events, None) is None:
            return Node(Position(self.name, 1, 1))
        root = self._node(next(self.events), depth=0)
        extra = next(self.events, None)
        if extra is not None:
            raise RecipeError(
                "a second document", position=extra.position, hint="keep one recipe to a file"
            )
        return root

    def _node(self, event: Event, depth: int) -> Node:
        if event.kind == "alias":
            return self._alias(event, depth)
        if event.tag is not None:
            raise RecipeError(
                f"tags are not allowed: {short(event.tag)}",
                position=event.position,
                hint="remove it; quotes make a string",
            )
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        node = Node(event.position)
        if event.kind == "scalar":
            node.scalar, node.text = self._scalar(event), event.text
        else:
            self._check_depth(depth + 1, event)
            fill = self._fill_mapping if event.kind == "mapping" else self._fill_sequence
            fill(node, depth + 1)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _scalar(self, event: Event) -> Scalar:
        if event.plain:
            return resolve(event.text, event.position)
        escaped = next((c for c in event.text if c == "\0" or "\ud800" <= c <= "\udfff"), None)
        if escaped is not None:
            raise RecipeError(
                f"the string holds U+{ord(escaped):04X}, which is not text", position=event.position
            )
        return event.text

    def _fill_sequence(self, node: Node, depth: int) -> None:
        node.items = []
        while (event := next(self.events)).kind != "end":
            child = self._node(event, depth)
            node.items.append(child)
            self._grow(node, child, event)

    def _fill_mapping(self, node: Node, depth: int) -> None:
        node.entries = {}
        while (event := next(self.events)).kind != "end":
            key = self._key(event, node.entries)
            child = self._node(next(self.events), depth)
            node.entries[key] = (event.position, child)
            node.size += 1
            self._grow(node, child, event)

    def _key(self, event: Event, entries: dict[str, tuple[Position, Node]]) -> str:
        if event.kind == "scalar" and event.plain and event.text == "<<":
            raise RecipeError(
                "merge keys are not allowed",
                position=event.position,
                hint="use `extends: other.yaml` to build on another recipe",
            )
        key = self._node(event, depth=0).scalar if event.kind == "scalar" else None
        if not isinstance(key, str):
            what = short(event.text) if event.text else "this one"
            raise RecipeError(
                f"a key must be text: {what} is not", position=event.position, hint="quote the key"
            )
        if key in entries:
            first = entries[key][0].line
            raise RecipeError(
                f"the key {short(key)} is on line {first} and again on line {event.position.line}",
                position=event.position,
                hint="remove one of them",
            )
        return key

    def _alias(self, event: Event, depth: int) -> Node:
        anchor = event.anchor or ""
        if anchor not in self.anchors:
            hint = hint_for(anchor, self.anchors) or "quote the text if it starts with a *"
            raise RecipeError(
                f"no anchor &{anchor} above this alias", position=event.position, hint=hint
            )
        target = self.anchors[anchor]
        if target is None:
            raise RecipeError(f"the alias *{anchor} contains itself", position=event.position)
        self._check_depth(depth + target.height, event)
        return replace(target, position=event.position)

    def _check_depth(self, depth: int, event: Event) -> None:
        if depth > MAX_DEPTH:
            raise RecipeError(
                f"nested more than {MAX_DEPTH} levels deep",
                position=event.position,
                hint="a recipe needs fewer than ten",
            )

    def _grow(self, node: Node, child: Node, event: Event) -> None:
        node.size += child.size
        node.height = max(node.height, child.height + 1)
        if node.size > MAX_NODES:
            raise RecipeError(
                f"more than {MAX_NODES} keys and values, aliases counted in full",
                position=event.position,
            )
