from __future__ import annotations

import os
import tracemalloc

import pytest

from shrink.data.listing import Names

ODD = ["cat/1.png", "", "größe/🐈.png", os.fsdecode(b"\xff\xfe.png"), "cat/1.png"]


def test_names_are_a_sequence_of_the_names_given() -> None:
    names = Names(ODD)
    assert (len(names), list(names), names[-1]) == (5, ODD, ODD[-1])
    assert names == ODD
    assert names != ODD[1:]
    assert [names.encoded(place) for place in range(5)] == [os.fsencode(name) for name in ODD]


@pytest.mark.parametrize("place", [5, -6])
def test_names_raise_index_error_outside(place: int) -> None:
    with pytest.raises(IndexError):
        Names(ODD)[place]


def test_take_and_slices_give_names_in_the_order_asked_for() -> None:
    names = Names(ODD)
    assert names.take([3, 0, 3]) == [ODD[3], ODD[0], ODD[3]]
    assert names[1:4] == ODD[1:4]
    assert names[::-2] == ODD[::-2]


def test_take_of_what_was_taken_counts_from_its_own_names() -> None:
    taken = Names(ODD).take([3, 0, 4])
    assert (len(taken), taken[-1], taken.encoded(0)) == (3, ODD[4], os.fsencode(ODD[3]))
    assert taken[1:].take([1, 0]) == [ODD[4], ODD[0]]
    with pytest.raises(TypeError, match="cannot grow"):
        taken.append("more")


def test_under_puts_names_that_are_not_absolute_into_a_folder() -> None:
    names = Names(["a.png", "/b.png", "c.png"])
    assert names.under("/data") == ["/data/a.png", "/b.png", "/data/c.png"]
    assert names.take([2, 1]).under("/data").take([0]) == ["/data/c.png"]
    assert names == ["a.png", "/b.png", "c.png"]


def test_unique_keeps_what_comes_first() -> None:
    assert Names(["b", "a", "b", "c", "a"]).unique() == ["b", "a", "c"]


def test_names_take_less_than_half_of_the_memory_of_strings() -> None:
    def make() -> list[str]:
        return [f"train/airplane/{number:07}.png" for number in range(5000)]

    def allocated(function: type) -> int:
        tracemalloc.start()
        kept = function(make())
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return size if len(kept) == 5000 else 0

    assert allocated(Names) < 0.5 * allocated(list)
