"""What firmware needs of a file in bands, for its C array."""

from __future__ import annotations

from pathlib import Path

from shrink.compact.graph import write_graph
from shrink.compact.plan import plan
from shrink.contract.job import FirmwareFactsJob
from shrink.tools.export import firmware_facts
from tests.compact.runs import allocates
from tests.compact.test_plan import banded_chain
from tests.jobs import quiet, source


def test_firmware_facts_of_a_file_in_bands_name_new_operators_and_its_own_arena(
    tmp_path: Path,
) -> None:
    graph = banded_chain(4, kept=False)[0]
    content = write_graph(graph, plan(graph, 20).offsets)
    path = tmp_path / "banded.tflite"
    path.write_bytes(content)
    facts = firmware_facts(FirmwareFactsJob(name="banded", model=source(path)), quiet)
    kinds = ["AddConcatenation", "AddConv2D", "AddDepthwiseConv2D", "AddSlice"]
    assert facts.operators == tuple(kinds)
    arena = facts.arena_bytes
    assert isinstance(arena, int)
    assert allocates(content, arena)
    assert not allocates(content, arena - 64)
    assert isinstance(facts.arena_32_bytes, int)
