"""Compile a .tflite file for an Ethos-U NPU with Vela, and read what it says of the result.

Source: ethos-u-vela 5.2, its summary table (`*_summary_*.csv`: memories in KiB, time in s) and the
warnings that it prints for each operator that it leaves to the CPU.
"""

from __future__ import annotations

import csv
import importlib.metadata
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from shrink.base import files
from shrink.base.child import ChildRun, NoAnswer, run_child
from shrink.base.errors import ModelError, StageError
from shrink.compact.targets.names import check_vela
from shrink.contract.compaction import Compiled, CpuOperator, Placement
from shrink.tflite.model import Operator, Subgraph, read
from shrink.tflite.runtime import MODULE, VelaRequest

NPU_OPERATOR = "ethos-u"
_PACKAGE = "ethos-u-vela"
_TIMEOUT_S = 1800.0
_KIB = 1024
_MOST_WORDS = 400
_LEFT = re.compile(
    r"^Warning \([^)]*\) operator: (?P<kind>\S+), ofm: '(?P<tensor>[^\n]*)'\n"
    r"Reason: (?P<reason>.+?)(?:\n|\Z)",
    re.MULTILINE,
)
_FAILED = re.compile(r"RuntimeError: Compilation failed: (?:Error: )?(.*)", re.DOTALL)
_NO_REASON = "Vela gives no reason"


def compile_with_vela(content: bytes, target: str) -> tuple[bytes, Placement]:
    """Return the compiled file, and what Vela says of it.

    Args:
        content: a .tflite file.
        target: Vela's name of an accelerator configuration.

    Raises:
        ModelError: it is no TFLite model, or has several subgraphs.
        ResourceError: Vela is not installed.
        StageError: Vela refuses the file, or ends without one.
    """
    check_vela(target)
    graph = only_subgraph(content)
    with tempfile.TemporaryDirectory(prefix="shrink-vela-") as folder:
        path, made = Path(folder) / "model.tflite", Path(folder) / "made"
        files.write_bytes(path, content)
        made.mkdir()
        request = VelaRequest(str(path), str(made), target)
        run = run_child(MODULE, request, NoAnswer, timeout_s=_TIMEOUT_S)
        compiled, tables = made / "model_vela.tflite", sorted(made.glob("*_summary_*.csv"))
        if run.failure is not None or not compiled.is_file() or not tables:
            raise _refused(run, target)
        result = compiled.read_bytes()
        with tables[0].open(newline="", encoding="utf-8") as stream:
            figures = next(csv.DictReader(stream))
    reasons = {(m["kind"], m["tensor"]): m["reason"] for m in _LEFT.finditer(run.output)}
    estimates = compiled_of(figures)
    return result, Placement(
        target=target,
        by=estimates.compiler,
        operators=len(graph.operators),
        on_cpu=left_on_cpu(graph, only_subgraph(result), reasons),
        compiled=estimates,
    )


def _refused(run: ChildRun[NoAnswer], target: str) -> StageError:
    words = _FAILED.search(run.output)
    said = " ".join(words[1].split())[:_MOST_WORDS] if words else run.failure or "it wrote no file"
    return StageError(
        f"Vela does not compile the file for {target}: {said}",
        hint="quantize with scheme static_wi8_ai8 and target: tflm",
    )


def left_on_cpu(
    given: Subgraph, compiled: Subgraph, reasons: Mapping[tuple[str, str], str]
) -> tuple[CpuOperator, ...]:
    """Return the operators of a compiled file that no NPU runs.

    Args:
        given: the file before.
        compiled: the file after, in which an operator `ethos-u` stands for all that an NPU runs.
        reasons: by kind and the name of the output.
    """

    def key(graph: Subgraph, operator: Operator) -> tuple[str, str]:
        outputs = operator.outputs
        return operator.name, graph.tensors[outputs[0]].name if outputs else ""

    places: dict[tuple[str, str], int] = {}
    for number, operator in enumerate(given.operators):
        places.setdefault(key(given, operator), number)
    left = [key(compiled, o) for o in compiled.operators if o.name != NPU_OPERATOR]
    return tuple(
        CpuOperator(
            operator=places.get(one),
            kind=one[0],
            tensor=one[1],
            reason=reasons.get(one, _NO_REASON),
        )
        for one in left
    )


def only_subgraph(content: bytes) -> Subgraph:
    """Return the subgraph of a file; raise `ModelError` where it has several."""
    graphs = read(content)
    if len(graphs) > 1:
        raise ModelError(f"the file has {len(graphs)} subgraphs, and only one can be placed")
    return graphs[0]


def compiled_of(figures: Mapping[str, str]) -> Compiled:
    """Return what a row of Vela's summary says, in bytes, Hz and ms."""

    def kib(name: str) -> int:
        return round(float(figures[name]) * _KIB)

    return Compiled(
        compiler=f"Vela {importlib.metadata.version(_PACKAGE)}",
        system=figures["system_config"],
        memory_mode=figures["memory_mode"],
        clock_hz=float(figures["core_clock"]),
        sram_bytes=kib("sram_memory_used"),
        dram_bytes=kib("dram_memory_used"),
        flash_bytes=kib("off_chip_flash_memory_used"),
        cycles=int(float(figures["cycles_total"])),
        inference_ms=1000 * float(figures["inference_time"]),
        macs=int(float(figures["nn_macs"])),
    )
