"""A strict reader of YAML 1.2 (core schema) that knows where everything stands.

Stricter than YAML: UTF-8 only, one document, text keys, no duplicate keys, no tags, no merge
keys, no NaN or infinity, and limits on size, depth and the number of values. Whatever the
input, the only error is `RecipeError`, with file, line and column where there are any.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NoReturn

from shrink.base.errors import Position, RecipeError, did_you_mean
from shrink.base.foreign import Json
from shrink.base.yaml.parse import Composer, Node, Scalar, events, position_after, resolve

MAX_BYTES = 1_000_000
"""The largest recipe that is read, in bytes."""

KeyPath = tuple[str | int, ...]
"""The keys and list indices that lead from the root to a value."""

# Printable in YAML 1.2, less what it and editors disagree on: U+0085, U+2028, U+2029, U+FEFF.
_UNREADABLE = (
    r"[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_UNREADABLE_ASCII = r"[^\t\n\r\x20-\x7e]"
"""The part of `_UNREADABLE` that ASCII text can hold; the whole takes milliseconds to compile."""
_LINE_WITH_TAB = re.compile(r"(?:\A|[\n\r])([^\t\n\r]*)\t")
_COMMENT = re.compile(r"(^| )#")
_DIRECTIVE_1_2 = re.compile(r"%YAML[ \t]+1\.2[ \t]*(#.*)?")


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
    texts: dict[KeyPath, str]
    """Each scalar as it was written, without quotes: `1e-3`, which is 0.001."""

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
    _check_tabs(text, name)
    _check_directives(text, name)
    root = Composer(events(text, name), name).document()
    document = Document(value=None, positions={}, key_positions={}, texts={})
    value = _expand(root, (), document)
    if value is None:
        raise RecipeError("the recipe is empty", subject=name, hint="`shrink init` writes one")
    return replace(document, value=value)


def parse_scalar(text: str) -> Scalar:
    """Return the value of `TEXT` in `--set KEY=TEXT`, as a recipe would read it.

    Text that starts with a bracket, a brace or a quote is a list, a mapping or a quoted string.
    All else is one scalar, whatever characters it holds: `a: b`, `#1` and `*.png` are strings.
    Empty text is None, as `key:` with nothing after it is in a recipe; `""` is the empty string.

    Raises:
        RecipeError: the text is not one such value.
    """
    text = text.strip()
    name = "--set"
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
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RecipeError("no such recipe", subject=path, hint=_recipe_hint(path)) from error
    except IsADirectoryError as error:
        raise RecipeError(
            "this is a folder, not a recipe", subject=path, hint="name a .yaml file in it"
        ) from error
    except PermissionError as error:
        raise RecipeError(
            "the recipe may not be read: permission denied",
            subject=path,
            hint=f"chmod u+r {path}",
        ) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise RecipeError(
            f"the recipe cannot be read: {reason}", subject=repr(str(path))
        ) from error
    if len(data) > MAX_BYTES:
        _refuse_size(str(path))
    return data


def _recipe_hint(path: Path) -> str:
    try:
        names = [file.name for file in path.parent.glob("*.yaml")]
    except OSError:
        names = []
    near = did_you_mean(path.stem, [Path(name).stem for name in names])  # every ending is alike
    listing = "`shrink recipes` lists those that come with shrink"
    return f"did you mean {path.parent / near}.yaml? {listing}" if near else listing


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
            f"not UTF-8 text: the character U+{ord(found.group()):04X} cannot stand in a recipe",
            position=position_after(text[: found.start()], name),
            hint="save the recipe as UTF-8, without control characters",
        )


def _check_tabs(text: str, name: str) -> None:
    # PyYAML's two engines differ in the tabs that they refuse, except within comments.
    for found in _LINE_WITH_TAB.finditer(text):
        if not _COMMENT.search(found.group(1)):
            raise RecipeError(
                "a tab outside a comment",
                position=position_after(text[: found.end(1)], name),
                hint="use spaces; inside double quotes, \\t is a tab",
            )


def _check_directives(text: str, name: str) -> None:
    # PyYAML's two engines differ in the directives that they refuse.
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("%") and not _DIRECTIVE_1_2.fullmatch(line):
            raise RecipeError(
                "a directive that recipes do not have",
                position=Position(name, number, 1),
                hint="remove the line; recipes are YAML 1.2",
            )
        if line.strip() and not line.lstrip().startswith("#") and not line.startswith("%"):
            return


def _refuse_size(name: str) -> NoReturn:
    raise RecipeError(
        f"the recipe is larger than {MAX_BYTES // 1_000_000} MB",
        subject=name,
        hint="is this a recipe, or a model or data file?",
    )


def _expand(node: Node, path: KeyPath, document: Document) -> Json:
    """Return a node's plain value, and enter the positions of all that it holds."""
    document.positions[path] = node.position
    if node.items is not None:
        return [_expand(item, (*path, i), document) for i, item in enumerate(node.items)]
    if node.entries is None:
        document.texts[path] = node.text
        return node.scalar
    value = {}
    for key, (position, child) in node.entries.items():
        document.key_positions[(*path, key)] = position
        value[key] = _expand(child, (*path, key), document)
    return value
