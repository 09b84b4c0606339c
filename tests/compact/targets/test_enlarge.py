"""Enlargements as copies: the same bytes in every runtime, with other operators."""

from __future__ import annotations

import pytest

from shrink.base.errors import StageError
from shrink.compact.graph import read_graph, write_graph
from shrink.compact.targets import place as place_file
from shrink.compact.targets.enlarge import with_copied_pixels
from shrink.compact.targets.place import place
from shrink.compact.verify import Equality, compare, random_examples
from shrink.contract.compaction import CpuOperator, Placement
from tests.compact.toys import Net


def enlarged(factor: int, bilinear: bool = False) -> bytes:
    net = Net((1, 5, 4, 3))
    return net.file(net.enlarge(net.conv(net.input, 4), factor, bilinear))


@pytest.mark.parametrize("factor", [3, 7])
def test_with_copied_pixels_gives_the_same_bytes(factor: int) -> None:
    graph = read_graph(enlarged(factor))
    copied = with_copied_pixels(graph, {1})
    kinds = [operator.name for operator in copied.operators]
    assert kinds == ["CONV_2D", "CONCATENATION", "RESHAPE", "CONCATENATION", "RESHAPE"]
    equality = compare(write_graph(graph), (write_graph(copied),), random_examples(graph, 4))
    assert equality.different == ()
    assert equality.distinct
    assert "TFLite Micro" in equality.runtimes


def test_with_copied_pixels_leaves_others() -> None:
    for content, places in (
        (enlarged(3), set[int]()),
        (enlarged(3, bilinear=True), {1}),
        (enlarged(11), {1}),  # more inputs than TFLite Micro's concatenation takes
    ):
        graph = read_graph(content)
        assert with_copied_pixels(graph, places).operators == graph.operators


def test_place_rewrites_what_an_npu_would_leave() -> None:
    placed = place(enlarged(3), "ethos-u55-64")
    assert placed.placement.on_cpu == ()
    (told,) = placed.placement.rewritten
    assert told.startswith("1 RESIZE_NEAREST_NEIGHBOR became concatenations")
    assert place(enlarged(4), "ethos-u55-64").placement.rewritten == ()


def test_place_takes_what_vela_made_where_litert_cannot_compare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file with an operator that LiteRT does not have is compiled without the rewriting."""
    content = enlarged(3)
    left = Placement(operators=2, on_cpu=(CpuOperator(operator=1, kind="RESIZE_NEAREST_NEIGHBOR"),))
    asked: list[bytes] = []

    def compiled(given: bytes, _: str) -> tuple[bytes, Placement]:
        asked.append(given)
        return b"compiled", left

    def refused(*_: object) -> Equality:
        raise StageError("a runtime cannot run the file")

    monkeypatch.setattr(place_file, "compile_with_vela", compiled)
    monkeypatch.setattr(place_file, "compare", refused)
    placed = place(content, "ethos-u55-64")
    assert (placed.content, placed.placement, asked) == (b"compiled", left, [content])
