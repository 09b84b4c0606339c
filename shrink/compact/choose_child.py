"""Child process: one part of the search for bands.

The graph reaches it as a file, in which tensors are numbered anew, in the same order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shrink.base.child import Channel, serve
from shrink.base.foreign import JsonObject
from shrink.compact.bands import Banding
from shrink.compact.graph import read_graph
from shrink.compact.moves import Choice, moved_choices
from shrink.compact.search import Candidate
from shrink.compact.stretch import Survey

MODULE = "shrink.compact.choose_child"


@dataclass(frozen=True)
class PartRequest:
    """Which part of which search.

    Attributes:
        path: the .tflite file of the graph.
        max_macs: multiply-accumulates that may come to those of the graph.
        part: of the search.
    """

    path: str
    max_macs: int
    part: int


@dataclass(frozen=True)
class PartAnswer:
    """The choices that were found; see `read_choice`."""

    choices: list[JsonObject] = dataclasses.field(default_factory=list)


def search_part(request: PartRequest, _: Channel) -> PartAnswer:
    """Search, in the child process."""
    survey = Survey(read_graph(Path(request.path).read_bytes()))
    found = moved_choices(survey, request.max_macs, request.part)
    return PartAnswer([plain_choice(choice) for choice in found])


def plain_choice(choice: Choice) -> JsonObject:
    """Return a choice as JSON has it."""
    candidate = choice.candidate._asdict()
    bandings = [
        banding._replace(kept=frozenset())._asdict() | {"kept": sorted(banding.kept)}
        for banding in choice.candidate.bandings
    ]
    return choice._asdict() | {"candidate": candidate | {"bandings": bandings}}


def read_choice(plain: JsonObject, tensors: Sequence[int]) -> Choice:
    """Return a choice from JSON.

    Args:
        plain: see `plain_choice`.
        tensors: in the graph, by their places in the file.
    """
    candidate = plain["candidate"]
    bandings = [
        Banding(**one)._replace(
            cuts=tuple(one["cuts"]), kept=frozenset(tensors[place] for place in one["kept"])
        )
        for one in candidate["bandings"]
    ]
    return Choice(**plain | {"candidate": Candidate(**candidate | {"bandings": tuple(bandings)})})


if __name__ == "__main__":
    serve({PartRequest: search_part})
