"""A pairwise cover holds every pair, in few cases."""

from __future__ import annotations

import itertools

import pytest

from tests.pairwise import pairwise_cases


@pytest.mark.parametrize("sizes", [(2, 2), (3, 2, 2, 2), (4, 3, 3, 2, 2, 2), (2,) * 14, (6, 5, 4)])
def test_pairwise_cases_hold_every_pair_in_few_cases(sizes: tuple[int, ...]) -> None:
    factors = {f"factor {n}": [f"{n}.{value}" for value in range(s)] for n, s in enumerate(sizes)}
    cases = pairwise_cases(factors)
    for (one, ones), (other, others) in itertools.combinations(factors.items(), 2):
        found = {(case[one], case[other]) for case in cases}
        assert found == set(itertools.product(ones, others))
    largest, second = sorted(sizes)[-1], sorted(sizes)[-2]
    assert largest * second <= len(cases) <= largest * second + 2 * len(sizes)


def test_pairwise_cases_are_the_same_every_time() -> None:
    factors: dict[str, list[object]] = {
        "precision": ["float32", "bfloat16"],
        "limit": [None, 1, {"unhashable": []}],
    }
    assert pairwise_cases(factors) == pairwise_cases(factors)
