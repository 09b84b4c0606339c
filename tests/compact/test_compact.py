"""The whole of it: a file in, a file out, or the reason why not."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from shrink.base.errors import StageError
from shrink.cli.compact import compaction_lines
from shrink.compact import compact as whole
from shrink.compact import search
from shrink.compact.arena import Version, allocated_bytes
from shrink.compact.compact import compact, smallest_arena
from shrink.compact.graph import write_graph
from shrink.compact.plan import Plan, plan
from shrink.compact.read import read_graph
from shrink.compact.result import Compacted
from shrink.compact.rows import rule_of
from shrink.compact.segment import GraphInfo
from shrink.compact.verify import compare, random_examples
from shrink.contract.compaction import RuntimeEquality
from shrink.contract.findings import Rewriting
from shrink.tflite.arena import arena_of
from shrink.tflite.interpreter import load
from shrink.tflite.model import packed, read, unpacked
from tests.compact.runs import allocates, outputs_of
from tests.compact.test_plan import decoder
from tests.compact.toys import Net, chain, with_old_codes


def wide() -> bytes:
    """An inverted residual whose middle is six times as wide: tiles save most of it."""
    net = Net((1, 48, 24, 4))
    middle = net.conv(net.conv(net.input, 48, (1, 1)), 0, depthwise=True)
    return net.file(net.conv(middle, 4, (1, 1)))


@pytest.fixture(scope="module")
def smallest() -> Compacted:
    return compact(wide())


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search for a moment, where another arena does as well as the smallest."""
    for name, few in (("_MOST_SCHEDULES", 300), ("_CHANGES", 40)):
        monkeypatch.setattr(search, name, few)


@pytest.mark.usefixtures("hasty")
def test_more_work_is_never_given_for_a_larger_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search with more to spend is another one, and may find less."""

    def left_alone(info: Any, left: int, place: Any) -> Any:
        found = search.Search(info, left, place)
        return found if left <= 0.06 * sum(info.macs) else SimpleNamespace(best=lambda: None)

    monkeypatch.setattr(whole, "Search", left_alone)
    model = wide()
    before = allocated_bytes(model)
    arenas = [smallest_arena(model, before // 4, share) for share in (0.05, 0.25)]
    assert arenas[0] == arenas[1] < before


def test_a_wide_middle_is_never_whole_in_memory(smallest: Compacted) -> None:
    content, found = wide(), smallest
    assert found.changed
    assert found.arena_before > 2 * 48 * 24 * 48
    assert found.arena_after < 0.5 * found.arena_before
    assert allocates(found.content, found.arena_after)
    assert not allocates(found.content, found.arena_after - 64)
    assert found.macs_after <= 1.05 * found.macs_before
    assert found.bound_bytes is not None
    assert found.bound_bytes <= found.arena_after
    assert outputs_of(found.content) == outputs_of(content)
    assert found.equality is not None
    assert found.equality.distinct
    assert len(found.equality.runtimes) == 4


def test_it_says_how_much_each_operator_needs_of_the_arena(smallest: Compacted) -> None:
    before, after = smallest.memory_before, smallest.memory_after
    assert after is not None
    assert max(before.live_bytes) == 2 * 48 * 24 * 48
    assert max(after.live_bytes) < 0.5 * max(before.live_bytes)
    details = smallest.details
    assert details.memory_after == after
    assert details.memory_before is not None
    assert details.memory_before.peak_operator == "DEPTHWISE_CONV_2D"


def test_a_file_without_gain_comes_back_as_it_is() -> None:
    net = Net((1, 2, 2, 4))
    content = net.file(net.conv(net.input, 4, (1, 1)))
    found = compact(content)
    assert found.content == content
    assert "found" in found.reason
    assert found.memory_before.live_bytes == (32,)
    assert found.memory_after is None
    assert found.arena_after == found.arena_before


def test_an_arena_is_searched_for_only_where_that_decides(
    smallest: Compacted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(whole, "Search")
    before = smallest.arena_before
    assert smallest_arena(wide(), enough=before) == before
    assert smallest_arena(wide(), enough=48 * 24 * 4) > 48 * 24 * 4  # less than the input takes
    with pytest.raises(NameError):
        smallest_arena(wide(), enough=before // 2)


def test_an_arena_that_compact_would_leave_as_it_is_is_not_called_smaller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under 1 % the stage hands the file on unchanged: what fits by so little does not fit."""
    graph = read_graph(chain())

    def found(*arenas: int) -> int:
        versions = [Version(graph, Plan({}, 9_000, 0), b"", one, ()) for one in arenas]
        monkeypatch.setattr(whole, "_versions", lambda *_: iter(versions))
        return smallest_arena(chain(), enough=9_960)

    monkeypatch.setattr(whole, "allocated_as_given", lambda *_: 10_000)
    assert found(9_950) == 10_000
    assert found(9_950, 8_000) == 8_000
    assert found(9_900, 8_000) == 9_900


def test_an_arena_that_it_fits_already_changes_nothing() -> None:
    found = compact(chain(), arena=1_000_000)
    assert found.content == chain()
    assert "already" in found.reason


def test_a_file_whose_output_is_its_input_is_left_without_operators() -> None:
    model = unpacked(chain())
    model.subgraphs[0].outputs = model.subgraphs[0].inputs
    found = compact(packed(model))
    assert not read(found.content)[0].operators
    assert found.arena_after < found.arena_before


@pytest.mark.usefixtures("hasty")
def test_a_comparison_without_a_runtime_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shrink.compact.verify._answers", lambda *_: {})
    examples = random_examples(read_graph(chain()), 2)
    with pytest.raises(StageError, match="allocates the file but does not run it"):
        compare(chain(), (chain(),), examples)
    with pytest.raises(StageError, match="allocates the file but does not run it"):
        compact(wide())


@pytest.mark.usefixtures("hasty")
def test_an_arena_is_met_with_little_extra_work(smallest: Compacted) -> None:
    content = wide()
    goal = (smallest.arena_before + smallest.arena_after) // 2
    found = compact(content, arena=goal)
    assert found.arena_after <= goal
    assert found.macs_after <= smallest.macs_after


@pytest.mark.usefixtures("hasty")
def test_an_arena_that_cannot_be_met_is_an_error_that_says_what_can() -> None:
    with pytest.raises(StageError, match="smallest arena found") as caught:
        compact(wide(), arena=1000)
    hint = re.match(r"--arena-bytes (\d+),", str(caught.value.hint))
    assert hint is not None
    possible = int(hint[1])
    found = compact(wide(), arena=possible)
    assert found.changed
    assert found.arena_after <= possible < 0.5 * found.arena_before
    assert allocates(found.content, possible)


@pytest.mark.usefixtures("hasty")
def test_a_file_with_the_deprecated_operator_codes_alone_is_rewritten() -> None:
    found = compact(with_old_codes(wide()))
    assert found.changed
    assert found.arena_after < 0.5 * found.arena_before
    assert outputs_of(found.content) == outputs_of(wide())


def test_a_comparison_finds_a_file_that_differs() -> None:
    net = Net((1, 16, 8, 4), seed=5)
    wide = net.conv(net.input, 24, (1, 1))
    other = net.file(net.conv(net.conv(wide, 0, (3, 3), depthwise=True), 4, (1, 1)))
    graph = read_graph(chain())
    planned = write_graph(graph, plan(graph, 1).offsets)
    examples = random_examples(graph, 3)
    assert compare(chain(), [planned], examples).different == ()
    assert len(compare(chain(), [planned, other], examples).different) == 4


def test_a_comparison_counts_a_runtime_that_runs_one_file_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs = [np.arange(6, dtype=np.int8).reshape(2, 3)]
    answers = iter([{"LiteRT": outputs, "TFLite Micro": outputs}, {"LiteRT": outputs}])
    monkeypatch.setattr("shrink.compact.verify._answers", lambda *_: next(answers))
    found = compare(b"given", [b"rewritten"], [np.zeros((2, 4), np.int8)])
    assert found.different == ("TFLite Micro",)


def test_a_file_in_tiles_runs_example_by_example(smallest: Compacted) -> None:
    """Resized to a larger batch, its slices would leave out all examples but the first."""
    content, found = wide(), smallest
    assert found.changed
    given = np.random.default_rng(0).normal(0, 20, (6, 48, 24, 4)).astype(np.float32)
    wanted, got = (load(one).predict(given)[0] for one in (content, found.content))
    assert got.tolist() == wanted.tolist()


def dilated(batch: int) -> bytes:
    """A convolution between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND, whose true batch is 4."""
    net = Net((1, 24, 16, 4), seed=2)
    middle = net.conv(net.conv(net.input, 48, (1, 1)), 0, depthwise=True)
    spread = net.space_to_batch(net.conv(middle, 4, (1, 1)), batch)
    inner = net.conv(spread, 8, (3, 3), padding=schema.Padding.VALID)
    shape = (batch, *net.shape(inner)[1:])
    net.graph.tensors[inner].shape = np.array(shape, np.int32)
    return net.file(net.conv(net.batch_to_space(inner), 4, (1, 1)))


@pytest.mark.usefixtures("hasty")
def test_tensors_of_several_examples_are_never_cut() -> None:
    content = dilated(4)
    assert outputs_of(content)
    graph = read_graph(content)
    rules = {o.name: rule for o, rule in zip(graph.operators, GraphInfo(graph).rules, strict=True)}
    batched = [o for o in graph.operators if graph.tensors[o.inputs[0]].shape[0] == 4]
    assert [o.name for o in batched] == ["CONV_2D", "BATCH_TO_SPACE_ND"]
    assert all(rule_of(graph, operator) is None for operator in batched)
    assert rules["SPACE_TO_BATCH_ND"] is None
    found = compact(content, max_extra_macs=0.3)
    assert found.changed
    assert outputs_of(found.content) == outputs_of(content)


def test_a_file_whose_stored_batch_is_false_is_refused() -> None:
    """As converters write dilated convolutions whose batch is open: LiteRT computes it anew."""
    content = dilated(1)
    assert arena_of(content).value is None
    with pytest.raises(StageError, match="batch of 1 in its stored shape in place of 4"):
        compact(content)


@pytest.mark.usefixtures("hasty")
def test_a_rewritten_file_that_fails_the_comparison_is_not_handed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    different = RuntimeEquality(
        examples=4, runtimes=("TFLite Micro",), different=("TFLite Micro",), distinct=True
    )
    monkeypatch.setattr(whole, "compare", lambda *_: different)
    found = compact(wide())
    assert found.content == wide()
    assert "does not give the same outputs in TFLite Micro" in found.reason
    with pytest.raises(StageError, match=r"cannot fit the model .* the same outputs"):
        compact(wide(), arena=found.arena_before // 2)


def test_a_rewritten_file_that_no_runtime_takes_is_different() -> None:
    model = unpacked(chain())
    kernel = model.subgraphs[0].operators[0].inputs[1]
    model.subgraphs[0].tensors[kernel].type = schema.TensorType.STRING
    examples = random_examples(read_graph(chain()), 2)
    found = compare(chain(), [packed(model)], examples)
    assert found.different == found.runtimes
    assert len(found.runtimes) == 4


@pytest.mark.usefixtures("hasty")
def test_transposed_convolutions_that_cmsis_nn_may_compute_otherwise_are_a_warning() -> None:
    found = compact(decoder())
    assert any("row tiles" in line for line in found.done)
    assert found.caution.startswith("transposed convolutions: for some shapes CMSIS-NN gives other")
    assert found.caution in found.notes
    shown = compaction_lines(
        Rewriting(**vars(found.details), path="m.tflite", file_bytes_before=1, file_bytes=1)
    )
    assert f"warning     {found.caution}" in shown
