from __future__ import annotations

import itertools

from tests.oracle.pairs import allowed_pairs, pairs

FACTORS = {"a": ["1", "2", "3"], "b": ["x", "y"], "c": ["p", "q", "r"], "d": ["u", "v"]}


def test_allowed_pairs_holds_every_pair_in_fewer_rows_than_the_product() -> None:
    rows = allowed_pairs(FACTORS)
    held = {pair for row in rows for pair in pairs(row)}
    for one, other in itertools.combinations(FACTORS, 2):
        for a, b in itertools.product(FACTORS[one], FACTORS[other]):
            assert ((one, a), (other, b)) in held
    assert len(rows) < 20  # of 36
    assert rows == allowed_pairs(FACTORS)


def test_allowed_pairs_leaves_out_what_is_not_allowed_and_nothing_else() -> None:
    rows = allowed_pairs(FACTORS, lambda row: not (row["a"] == "1" and row["b"] == "x"))
    held = {pair for row in rows for pair in pairs(row)}
    assert (("a", "1"), ("b", "x")) not in held
    assert (("a", "1"), ("b", "y")) in held
    assert (("a", "1"), ("c", "r")) in held
