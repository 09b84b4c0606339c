"""A page taken apart with html.parser: elements, ids, texts, and whether tags close in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input"}
Attributes = dict[str, str | None]


@dataclass
class Page(HTMLParser):
    """What a page holds, in the order of the document."""

    source: str
    elements: list[tuple[str, Attributes]] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    @property
    def text(self) -> str:
        """What a reader sees, styles left out."""
        return " ".join(" ".join(d for tag, d in self.texts if tag != "style").split())

    @property
    def style(self) -> str:
        return "".join(data for tag, data in self.texts if tag == "style")

    def values(self, attribute: str) -> list[str]:
        return [str(a[attribute]) for _, a in self.elements if attribute in a]

    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}
