"""From parser events to a tree of values, refusing what a recipe does not have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from shrink.base.errors import Position, RecipeError
from shrink.base.suggest import hint_for
from shrink.base.yaml.events import Event
from shrink.base.yaml.scalars import resolve, short

MAX_DEPTH = 32
"""The most mappings and lists inside each other."""
MAX_NODES = 100_000
"""The most keys and values, each alias counted as all that it stands for."""


@dataclass(slots=True)
class Node:
    """A value whose aliases still share one node; `size` and `height` count them in full."""

    position: Position
    scalar: Any = None
    items: list[Node] | None = None
    entries: dict[str, tuple[Position, Node]] | None = None
    size: int = 1
    height: int = 0


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
            node.scalar = self._scalar(event)
        else:
            self._check_depth(depth + 1, event)
            fill = self._fill_mapping if event.kind == "mapping" else self._fill_sequence
            fill(node, depth + 1)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _scalar(self, event: Event) -> Any:
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
        return Node(
            event.position, target.scalar, target.items, target.entries, target.size, target.height
        )

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
