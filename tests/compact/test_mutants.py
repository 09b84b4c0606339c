"""Damaged files: compact and inspect refuse them with typed errors, or take them as they are.

Most mutants go through every pass but not through a runtime, which would refuse them first: arenas
are estimated, and the search is short. Some go through everything.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from shrink.base.errors import InternalError, ModelError, ShrinkError
from shrink.compact import arena, search
from shrink.compact import compact as whole
from shrink.compact.decode import choice as decode_choice
from shrink.compact.decode.kernels import kernels, with_decode
from shrink.compact.graph import write_graph
from shrink.compact.plan import plan
from shrink.compact.read import read_graph
from shrink.contract.compaction import RuntimeEquality
from shrink.tflite.arena import ArenaFigure
from shrink.tflite.litert_twin import dense_twin
from shrink.tflite.memory import planned_bytes
from shrink.tflite.model import packed, read, unpacked
from shrink.tflite.runtime import MICRO, check_artifact
from tests.compact.test_decode import layers, shared, sparse
from tests.compact.toys import Net, chain, random_net

_NUMBERS = (0, 1, -1, 2, 3, 7, 127, 128, 255, 256, 65535, 2**31 - 1, -(2**31))
_REALS = (0.0, -1.0, float("nan"), float("inf"), 1e30)


def sources() -> list[bytes]:
    """Files of several kinds of operators, one of them with a memory plan."""
    net = Net((1, 12, 6, 4))
    middle = net.conv(net.conv(net.input, 24, (1, 1)), 0, depthwise=True)
    wide = net.file(net.conv(middle, 4, (1, 1)))
    graph = read_graph(wide)
    planned = write_graph(graph, plan(graph, 10).offsets)
    return [chain(8), wide, planned, *(random_net(seed) for seed in range(4))]


def mutant(content: bytes, chance: random.Random) -> bytes:
    """Return a file with some fields, bytes or bits changed, or cut off."""
    if chance.random() < 0.5:
        for _ in range(chance.randint(1, 3)):
            content = with_other_field(content, chance)
        return content
    changed = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        at, kind = chance.randrange(8, len(changed)), chance.random()
        if kind < 0.5:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind < 0.9:
            changed[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        else:
            del changed[max(at, 9) :]
    return bytes(changed)


def with_other_field(content: bytes, chance: random.Random) -> bytes:
    """Return a well-formed file of which one field of one table has another value."""
    try:
        model = unpacked(content)
        graph = model.subgraphs[0]
        tables = [model, graph, *graph.tensors, *model.operatorCodes, *model.buffers]
        tables += [*(model.metadata or []), *(t.quantization for t in graph.tensors)]
        options = [operator.builtinOptions for operator in graph.operators]
        tables += 3 * [*graph.operators, *options]
        table = chance.choice([one for one in tables if one is not None])
        name = chance.choice(list(vars(table)))
        setattr(table, name, other_value(getattr(table, name), chance))
        return packed(model)
    except Exception:  # what cannot be written, or read again, is no well-formed file
        return content


def other_value(value: object, chance: random.Random) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, np.integer)):
        return chance.choice([*_NUMBERS, int(value) + 1, int(value) - 1])
    if isinstance(value, float):
        return chance.choice(_REALS)
    if isinstance(value, np.ndarray) and value.size:
        changed, place = value.copy(), chance.randrange(value.size)
        kind = chance.random()
        if kind < 0.6:
            changed.flat[place] = chance.choice([*_NUMBERS, int(changed.flat[place]) + 1])
            return changed
        return value[:-1] if kind < 0.8 else np.concatenate([value, value[:1]])
    if isinstance(value, list) and value:
        items = list(value)
        kind = chance.random()
        if kind < 0.4:
            items.pop(chance.randrange(len(items)))
        elif kind < 0.7:
            items.append(chance.choice(items))
        else:
            chance.shuffle(items)
        return items
    return None


@pytest.fixture
def without_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    def estimated(content: bytes) -> int:
        return planned_bytes(read(content)[0]) + 1000

    same = RuntimeEquality(examples=1, runtimes=(MICRO,), different=(), distinct=True)
    for module in (whole, arena):
        monkeypatch.setattr(module, "allocated_bytes", estimated)
    monkeypatch.setattr(whole, "compare", lambda *_: same)
    for name, short in (("_MOST_SCHEDULES", 20), ("_CHANGES", 5)):
        monkeypatch.setattr(search, name, short)
    monkeypatch.setattr(decode_choice, "arena_of", lambda c: ArenaFigure(estimated(c), ""))
    monkeypatch.setattr("shrink.compact.plan._LEAST_ATTEMPTS", 5)
    monkeypatch.setattr("shrink.compact.plan._ATTEMPTS_A_BLOCK", 0)
    monkeypatch.setattr("shrink.compact.order._MOST_STATES", 200)


def outcome_of(content: bytes, decode: bool = False) -> str:
    """Return what becomes of a file; other errors than typed ones are raised."""
    most = 1 << 24 if decode else None
    try:
        found = whole.compact(content, arena=most, decode=decode)
        return "changed" if found.changed else "unchanged"
    except InternalError:
        raise
    except ShrinkError as error:
        return type(error).__name__


def outcomes(count: int, seed: int) -> set[str]:
    chance, given = random.Random(seed), sources()
    return {outcome_of(mutant(chance.choice(given), chance)) for _ in range(count)}


def stored() -> list[bytes]:
    """Files with many zeros, a table a channel, and one table under one scale."""
    few = shared((64, 96), 4)
    return [layers(sparse((64, 96)), 64), layers(few, 64), layers(few, 1)]


def outcomes_of_decode(count: int, seed: int) -> set[str]:
    """Return what becomes of mutants whose kernels are to be stored, and of mutants of files."""
    chance, given = random.Random(seed), stored()
    found = {outcome_of(mutant(chance.choice(given), chance), decode=True) for _ in range(count)}
    for content in given:
        graph = read_graph(content)
        found_kernels, _ = kernels(graph)
        encoded = write_graph(with_decode(graph, found_kernels, {found_kernels[0].index: 2}))
        for _ in range(count):
            try:
                dense_twin(mutant(encoded, chance))
            except ModelError:
                found.add("no twin")
    return found


def seeds(most: int) -> pytest.MarkDecorator:
    """Return the first seed, of few mutants, and slow ones, of many."""
    slow = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, most)]
    return pytest.mark.parametrize("seed", [1, *slow])


@seeds(12)
@pytest.mark.usefixtures("without_runtimes")
def test_compact_raises_typed_errors_only_for_mutants(seed: int) -> None:
    found = outcomes(200 if seed == 1 else 500, seed)
    assert found >= {"ModelError", "unchanged", "changed"}
    assert seed > 1 or len(found) == 3


@seeds(6)
@pytest.mark.usefixtures("without_runtimes")
def test_decode_raises_typed_errors_only_for_mutants(seed: int) -> None:
    found = outcomes_of_decode(40 if seed == 1 else 300, seed)
    assert found >= {"ModelError", "unchanged", "changed", "no twin"}
    assert seed > 1 or len(found) == 4


@pytest.mark.slow
def test_compact_raises_typed_errors_only_for_mutants_that_runtimes_see() -> None:
    assert outcomes(60, seed=3) >= {"ModelError"}


def test_an_operator_without_inputs_is_refused() -> None:
    model = unpacked(chain(8))
    model.subgraphs[0].operators[1].inputs = []
    with pytest.raises(ModelError, match=r"operator 1 \(DEPTHWISE_CONV_2D\) has 0 inputs"):
        whole.compact(packed(model))
    net = Net((1, 4, 4, 2))
    model = unpacked(net.file(net.same_scale(net.input, 1.0)))
    model.subgraphs[0].operators[0].inputs = []
    with pytest.raises(ModelError, match="has 0 inputs, and needs 1"):
        whole.compact(packed(model))


def inspections(folder: Path, count: int, seed: int) -> int:
    """Inspect mutants that pass the look into every file; return how many were described."""
    from shrink.tools.artifact import describe_artifact

    chance, given, described = random.Random(seed), sources(), 0
    path = folder / "mutant.tflite"
    for _ in range(count):
        path.write_bytes(mutant(chance.choice(given), chance))
        try:
            check_artifact(path)
            described += bool(describe_artifact(path).operators)
        except ShrinkError:
            pass
    return described


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = ArenaFigure(None, "not measured: no runtime here")
    monkeypatch.setattr("shrink.tools.artifact.arena_of", lambda _: figure)
    monkeypatch.setattr("shrink.tools.artifact.check_runs", lambda *_: None)


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("count", [200, pytest.param(5_000, marks=pytest.mark.slow)])
def test_inspect_raises_typed_errors_only_for_mutants(count: int, tmp_path: Path) -> None:
    assert count / 10 < inspections(tmp_path, count, seed=1) < 0.9 * count
