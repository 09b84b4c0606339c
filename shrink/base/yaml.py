"""A strict reader of YAML 1.2 (core schema) that knows the position of every key and value.

Stricter than YAML: UTF-8 only, one document, text keys, no duplicate keys, no tags, no merge keys,
no NaN or infinity, and limits on size, depth and the number of values. Whatever the input, the
only error is `RecipeError`, with file, line and column where there are any.

PyYAML's Python parser gives the nodes; libyaml refuses other inputs in other words.
"""

from __future__ import annotations

import copy
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn, TypeAlias

from shrink.base.errors import Position, RecipeError, did_you_mean, hint_for
from shrink.base.foreign import Json, JsonObject

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1_000_000
"""The largest recipe that is read, in bytes."""
MAX_DEPTH = 32
"""The most mappings and lists inside each other."""
MAX_NODES = 100_000
"""The most keys and values; an alias counts as all that it stands for."""
KeyPath = tuple[str | int, ...]
"""The keys and list indices that lead from the root to a value."""
Scalar: TypeAlias = str | int | float | bool | None

# Printable in YAML 1.2, less what it and editors disagree on: U+0085, U+2028, U+2029, U+FEFF.
_UNREADABLE = (
    r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_UNREADABLE_ASCII = r"[^\t\n\r\x20-\x7e]"
"""The part of `_UNREADABLE` that ASCII text can hold; the whole takes milliseconds to compile."""
_LINE_WITH_TAB = re.compile(r"(?:\A|[\n\r])([^\t\n\r]*)\t")
_COMMENT = re.compile(r"(^| )#")


_LINE_BREAK = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Document:
    """A YAML document as plain data, with the position of each key and value in the text."""

    value: Json
    """Nested dict, list, str, int, float, bool and None."""
    positions: dict[KeyPath, Position]
    """Where the value at each path starts; `()` is the root. An alias stands where it is written,
    what is inside it where the anchor has it."""
    key_positions: dict[KeyPath, Position]
    """Where the key that leads to each path starts; list items have none."""

    def position(self, path: KeyPath) -> Position:
        """Return where `path` is: its key, else its value, else its nearest ancestor."""
        for length in range(len(path), -1, -1):
            near = path[:length]
            found = self.key_positions.get(near) or self.positions.get(near)
            if found is not None:
                return found
        raise KeyError(path)


def load(path: Path) -> Document:
    """Read a recipe.

    Raises:
        RecipeError: there is no such file, it cannot be read, or it is no YAML of this dialect.
    """
    return loads(_decode(_read(path), str(path)), str(path))


def load_stream(stream: BinaryIO, name: str) -> Document:
    """Read a recipe from an open stream, such as standard input; `name` stands for the file.

    Raises:
        RecipeError: it is no YAML of this dialect, or too large.
    """
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        _refuse_size(name)
    return loads(_decode(data, name), name)


def loads(text: str, name: str) -> Document:
    """Read a recipe from text; `name` stands for the file in positions.

    Raises:
        RecipeError: the text is no YAML of this dialect, or holds nothing.
    """
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_BYTES:
        _refuse_size(name)
    _check_characters(text, name)
    for found in _LINE_WITH_TAB.finditer(text):
        if not _COMMENT.search(found.group(1)):
            raise RecipeError(
                "a tab outside a comment",
                position=position_after(text[: found.end(1)], name),
                hint="use spaces; inside double quotes, \\t is a tab",
            )
    document = Document(value=None, positions={}, key_positions={})
    root = _composed(text, name)
    value = None if root is None else _expand(root, (), document)
    if value is None:
        raise RecipeError("the recipe is empty", subject=name, hint="`shrink init` writes one")
    return replace(document, value=value)


def parse_scalar(text: str, name: str = "--set") -> Scalar:
    """Return the value of `TEXT` in `--set KEY=TEXT`, as a recipe would read it.

    Text that starts with a bracket, a brace or a quote is a list, a mapping or a quoted string.
    All else is one scalar, whatever characters it holds: `a: b`, `#1` and `*.png` are strings.
    Empty text is None, as `key:` with nothing after it is in a recipe; `""` is the empty string.

    Args:
        text: the value.
        name: the flag or key that it is of, for messages.

    Raises:
        RecipeError: the text is not one such value.
    """
    text = text.strip()
    if not text.startswith(("[", "{", '"', "'")):
        _check_characters(text, name)
        return resolve(text, Position(name, 1, 1))
    value = loads(text, name).value
    if text.startswith(('"', "'")) and not isinstance(value, str):
        raise RecipeError(
            "text follows the closing quote",
            position=Position(name, 1, 1),
            hint="write a mapping in braces: {key: value}",
        )
    return value


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            names = [file.stem for file in path.parent.glob("*.yaml")]
            near = did_you_mean(path.stem, names)  # every ending is alike
            listing = "`shrink recipes` lists bundled recipes, `shrink init` writes a first one"
            hint = f"did you mean {path.parent / near}.yaml? {listing}" if near else listing
            raise RecipeError("no such recipe", subject=path, hint=hint) from error
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        message = f"the recipe cannot be read: {reason}"
        hint = f"chmod u+r {path}" if isinstance(error, PermissionError) else "name a .yaml file"
        raise RecipeError(message, subject=repr(str(path)), hint=hint) from error
    if len(data) > MAX_BYTES:
        _refuse_size(str(path))
    return data


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8").removeprefix("\ufeff")
        raise RecipeError(
            f"not UTF-8 text: the byte 0x{data[error.start]:02X}",
            position=position_after(before, name),
            hint="save the recipe as UTF-8",
        ) from error


def _check_characters(text: str, name: str) -> None:
    found = re.search(_UNREADABLE_ASCII if text.isascii() else _UNREADABLE, text)
    if found:
        raise RecipeError(
            f"not UTF-8 text: the character U+{ord(found.group()):04X} is not allowed in a recipe",
            position=position_after(text[: found.start()], name),
            hint="save the recipe as UTF-8, without control characters",
        )


def _refuse_size(name: str) -> NoReturn:
    raise RecipeError(
        f"the recipe is larger than {MAX_BYTES // 1_000_000} MB",
        subject=name,
        hint="is this a recipe, or a model or data file?",
    )


def _composed(text: str, name: str) -> yaml.Node | None:
    """Return the root of the only document, its aliases replaced; None where there is none.

    A node has its `position`, and `is_alias` where an alias stands for it.
    """
    # Imported late: PyYAML costs 50 ms, and a command without a recipe does not need it.
    import yaml

    class Loader(yaml.SafeLoader):
        open: tuple[str, ...] = ()
        depth = 0

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            event: Json = self.peek_event()  # type: ignore[no-untyped-call]
            anchor = str(getattr(event, "anchor", None) or "")
            self.position = position = _position(event, name)
            is_alias = isinstance(event, yaml.AliasEvent)
            if is_alias and anchor not in self.anchors:
                hint = hint_for(anchor, self.anchors) or "quote the text if it starts with a *"
                raise RecipeError(
                    f"no anchor &{anchor} above this alias", position=position, hint=hint
                )
            if is_alias and anchor in self.open:
                raise RecipeError(f"the alias *{anchor} contains itself", position=position)
            if getattr(event, "tag", None) is not None:
                raise RecipeError(
                    f"tags are not allowed: {short(event.tag)}",
                    position=position,
                    hint="remove it; quotes make a string",
                )
            if not is_alias:
                self.anchors.pop(anchor, None)  # it may be given again
            before, self.depth = (self.open, self.depth), self.depth + 1
            self.open = (*self.open, anchor) if anchor else self.open
            if not isinstance(event, yaml.ScalarEvent):
                _check_depth(self.depth, position)
            node = super().compose_node(parent, index)
            self.open, self.depth = before
            if is_alias:
                node = copy.copy(node)
            vars(node).update(position=position, is_alias=is_alias)
            return node

    loader = Loader(text)
    loader.position = Position(name, 1, 1)
    try:
        root = loader.get_node() if loader.check_node() else None
        if loader.check_event(yaml.DocumentStartEvent):
            raise RecipeError(
                "a second document",
                position=_position(loader.peek_event(), name),  # type: ignore[no-untyped-call]
                hint="write one recipe per file",
            )
        return root
    except yaml.YAMLError as error:
        raise _syntax_error(error, text, name) from error
    except ValueError as error:  # an escape beyond Unicode
        raise RecipeError(f"not valid YAML: {_ESCAPE}", position=loader.position) from error


def _position(event: Json, name: str) -> Position:
    return Position(name, event.start_mark.line + 1, event.start_mark.column + 1)


def _expand(node: Json, path: KeyPath, document: Document) -> Json:
    """Return a node's plain value, and enter the positions of all that it holds."""
    document.positions[path] = node.position
    if len(document.positions) + len(document.key_positions) > MAX_NODES:
        raise RecipeError(
            f"more than {MAX_NODES} keys and values, aliases counted in full",
            position=node.position,
        )
    if node.id == "scalar":
        return _scalar(node)
    _check_depth(len(path) + 1, node.position)
    if node.id == "sequence":
        return [_expand(item, (*path, i), document) for i, item in enumerate(node.value)]
    value: JsonObject = {}
    for key_node, child in node.value:
        key, place = _key(key_node), key_node.position
        if key in value:
            first = document.key_positions[(*path, key)].line
            raise RecipeError(
                f"the key {short(key)} is on line {first} and again on line {place.line}",
                position=place,
                hint="remove one of them",
            )
        document.key_positions[(*path, key)] = place
        value[key] = _expand(child, (*path, key), document)
    return value


def _scalar(node: Json) -> Scalar:
    if node.style is None:
        return resolve(node.value, node.position)
    escaped = next((c for c in node.value if c == "\0" or "\ud800" <= c <= "\udfff"), None)
    if escaped is not None:
        raise RecipeError(
            f"the string holds U+{ord(escaped):04X}, which is not text", position=node.position
        )
    return str(node.value)


def _key(node: Json) -> str:
    is_scalar = node.id == "scalar" and not node.is_alias
    if is_scalar and node.style is None and node.value == "<<":
        raise RecipeError(
            "merge keys are not allowed",
            position=node.position,
            hint="use `extends: other.yaml` to build on another recipe",
        )
    key = _scalar(node) if is_scalar else None
    if not isinstance(key, str):
        what = short(node.value) if is_scalar and node.value else "this one"
        raise RecipeError(
            f"a key must be text: {what} is not", position=node.position, hint="quote the key"
        )
    return key


def _check_depth(depth: int, position: Position) -> None:
    if depth > MAX_DEPTH:
        raise RecipeError(
            f"nested more than {MAX_DEPTH} levels deep",
            position=position,
            hint="a recipe needs fewer than ten",
        )


_INDENTATION = "this does not fit the lines above it: check the indentation"
_ESCAPE = (
    "a backslash in double quotes that starts no valid escape: double it, or use single quotes"
)
_HEADER = "text after the | or > that starts a block of text: quote the text"
_TAG = "an ! that starts a tag: recipes have none, and text that starts so needs quotes"
_PLAIN_WORDS = {
    "mapping values are not allowed": "a ':' where no key is allowed: wrong indentation, or text "
    "with a colon that needs quotes",
    "sequence entries are not allowed": "a '-' where no list item is allowed",
    "',' or ']'": "a list [...] lacks a comma or its closing bracket",
    "',' or '}'": "a mapping {...} lacks a comma or its closing brace",
    "node content": "a value is missing",
    "unexpected end of stream": "a quote is never closed",
    "expected ':'": "a key without its ':'",
    "<block end>": _INDENTATION,
    "comment or a line break": _HEADER,
    "chomping": _HEADER,
    "alphabetic or numeric": "an & or * without a name: text that starts so needs quotes",
    "mapping keys are not allowed": "a '?' where no key is allowed: quote the text",
    "expected URI": _TAG,
    "expected '>'": _TAG,
    "expected '!'": _TAG,
    "expected ' '": _TAG,
    "hexdecimal": _ESCAPE,
    "document start": "text after the end of the recipe",
    "escape": _ESCAPE,
}
"""Plain words for a problem of PyYAML's that contains the key."""


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
