"""Where networks are cut for gradient checkpointing."""

from __future__ import annotations

from shrink.engine.recompute import Step, choose_segments


def chain(sizes: list[int], unrepeatable: int | None = None) -> list[Step]:
    return [
        Step((str(n),), (str(n + 1),), size, repeatable=n != unrepeatable)
        for n, size in enumerate(sizes)
    ]


def test_choose_segments_cuts_a_uniform_chain_into_equal_parts() -> None:
    assert choose_segments(chain([1] * 12), 3) == [range(4), range(4, 8), range(8, 12)]


def test_choose_segments_holds_least_when_the_number_is_free() -> None:
    # k segments of a uniform chain of n hold k - 1 + 2 n / k: least at the square root of 2 n.
    assert len(choose_segments(chain([1] * 72), None)) in (10, 11, 12)


def test_choose_segments_cuts_where_little_crosses() -> None:
    # A residual block: the sum needs what came before the block, so that cuts inside it cross two.
    block = [
        Step(("0",), ("1",), 4),
        Step(("1",), ("2",), 4),
        Step(("2",), ("3",), 4),
        Step(("3", "1"), ("4",), 4),
        Step(("4",), ("5",), 4),
        Step(("5",), ("6",), 4),
        Step(("6", "4"), ("7",), 4),
        Step(("7",), ("8",), 4),
    ]
    assert choose_segments(block, 2)[0].stop == 4


def test_choose_segments_leaves_out_what_may_not_be_repeated() -> None:
    segments = choose_segments(chain([1] * 8, unrepeatable=2), 2)
    assert segments == [range(2), range(4, 8)]


def test_choose_segments_finds_none_in_a_short_network() -> None:
    assert choose_segments(chain([1] * 3), None) == []
