"""A file placed on an accelerator or in a delegate: which operators stay on the CPU."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from shrink.base import files
from shrink.base.child import run_child
from shrink.base.errors import StageError
from shrink.base.measurement import Note
from shrink.compact.targets.names import NPUS
from shrink.compact.targets.vela import compile_with_vela, only_subgraph
from shrink.contract.compaction import CpuOperator, Placement
from shrink.tflite.runtime import MODULE, DelegateAnswer, DelegateRequest

_TIMEOUT_S = 120.0
_NO_REASON = "XNNPACK does not take it; LiteRT gives no reason"


@dataclass(frozen=True)
class Placed:
    """A file with the place of each of its operators.

    Attributes:
        content: the .tflite file; byte for byte the one that was given, unless it was compiled.
        placement: where its operators run.
        not_run: why LiteRT cannot run it; empty where it can.
    """

    content: bytes
    placement: Placement
    not_run: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report says of it, beside the placement."""
        return (Note.about(("cpu_operators",), f"by {self.placement.by}"),)


def place(content: bytes, target: str) -> Placed:
    """Return a file with the place of each operator; compiled, where the target is an NPU.

    Args:
        content: a .tflite file.
        target: one of `shrink.compact.targets.names.PLACED`.

    Raises:
        ModelError: it is no TFLite model, or has several subgraphs.
        ResourceError: Vela is not installed, which compiles for the NPU.
        StageError: Vela refuses the file, or LiteRT does not prepare it.
    """
    if target not in NPUS:
        return Placed(content, _with_delegate(content, target))
    compiled, placement = compile_with_vela(content, target)
    not_run = (
        f"not measured: the file is compiled for {target}, and neither LiteRT nor the PyPI build "
        "of TFLite Micro runs it; see the figures of the previous stage"
    )
    return Placed(compiled, placement, not_run)


def _with_delegate(content: bytes, target: str) -> Placement:
    """Ask LiteRT which operators its XNNPACK delegate takes on this machine."""
    graph = only_subgraph(content)
    with tempfile.TemporaryDirectory(prefix="shrink-place-") as folder:
        path = Path(folder) / "model.tflite"
        files.write_bytes(path, content)
        run = run_child(MODULE, DelegateRequest(str(path)), DelegateAnswer, timeout_s=_TIMEOUT_S)
    if run.failure is not None or run.answer is None:
        raise StageError(
            f"LiteRT does not prepare the file, so XNNPACK takes nothing: {run.failure}",
            hint="`shrink inspect` lists its operators",
        )
    on_cpu = tuple(
        CpuOperator(
            operator=number,
            kind=operator.name,
            tensor=graph.tensors[operator.outputs[0]].name if operator.outputs else "",
            reason=_NO_REASON,
        )
        for number, operator in enumerate(graph.operators)
        if number not in run.answer.taken
    )
    by = f"the delegate of LiteRT {run.answer.version} on this machine"
    return Placement(target=target, by=by, operators=len(graph.operators), on_cpu=on_cpu)
