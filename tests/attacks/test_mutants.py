"""Damaged copies of good files end in a ModelError or pass, whatever was damaged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from shrink.base.errors import ModelError
from shrink.model.scan import check_model_file
from tests.attacks.hostile import field as pb_field
from tests.attacks.hostile import node as graph_node
from tests.attacks.hostile import saved_model
from tests.attacks.parts import archive, dense, h5, sequential


def mutate(content: bytes, chance: random.Random) -> bytes:
    """Return the bytes with some changed, cut out, doubled, or cut off."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        if not changed:
            break
        at = chance.randrange(len(changed))
        kind = chance.random()
        if kind < 0.6:
            changed[at] = chance.choice((0, 1, 0x7F, 0xFF, chance.randrange(256)))
        elif kind < 0.75:
            del changed[at : at + chance.randint(1, 64)]
        elif kind < 0.9:
            changed[at:at] = changed[at : at + chance.randint(1, 64)]
        else:
            del changed[max(at, 8) :]
    return bytes(changed)


def scan_mutants(folder: Path, count: int, seed: int) -> int:
    """Scan mutants of an archive and an HDF5 file; return how many were refused."""
    config = sequential(dense(activation="relu"))
    sources = [archive(folder, config), h5(folder, config)]
    contents = {path: path.read_bytes() for path in sources}
    chance, refusals = random.Random(seed), 0
    for index in range(count):
        path = sources[index % len(sources)]
        path.write_bytes(mutate(contents[path], chance))
        try:
            check_model_file(path)
        except ModelError:
            refusals += 1
    return refusals


@pytest.mark.parametrize("count", [300, pytest.param(5_000, marks=pytest.mark.slow)])
def test_check_model_file_raises_only_model_errors_for_mutants(count: int, tmp_path: Path) -> None:
    assert scan_mutants(tmp_path, count, seed=count) > count / 6


def test_check_model_file_raises_only_model_errors_for_mutated_graphs(tmp_path: Path) -> None:
    body = pb_field(1, graph_node("Add")) * 20
    path = saved_model(tmp_path, body) / "saved_model.pb"
    content, chance, refusals = path.read_bytes(), random.Random(3), 0
    for _ in range(300):
        path.write_bytes(mutate(content, chance))
        try:
            check_model_file(path.parent)
        except ModelError:
            refusals += 1
    assert refusals > 100
