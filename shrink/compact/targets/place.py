"""A file placed on an accelerator or in a delegate: which operators stay on the CPU, and why."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from shrink.base import files
from shrink.base.child import run_child
from shrink.base.errors import InternalError, ModelError, StageError
from shrink.base.measured import Note
from shrink.compact.cost import graph_macs
from shrink.compact.graph import read_graph, write_graph
from shrink.compact.targets import edgetpu, xnnpack
from shrink.compact.targets.enlarge import ENLARGEMENT, with_copied_pixels
from shrink.compact.targets.names import NPUS
from shrink.compact.targets.vela import compile_with_vela
from shrink.compact.targets.view import View, read_view
from shrink.compact.targets.xnnpack_child import MODULE, DelegateAnswer, DelegateRequest
from shrink.compact.verify import (
    compare,
    examples_for,
    last_feature_map,
    random_examples,
    with_output,
)
from shrink.contract.compaction import CpuOperator, Placement
from shrink.tflite.model import MALFORMED, corrupt

_TIMEOUT_S = 120.0
_UNKNOWN_REASON = "LiteRT's delegate leaves it here, by none of the conditions that are known"


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
        StageError: Vela refuses the file.
    """
    if target in NPUS:
        compiled, placement = _compiled(content, target)
        return Placed(compiled, placement, not_run=_not_run(target))
    view = read_view(content)
    if target == "edgetpu":
        stays = _asked(edgetpu.staying, view)
        return Placed(content, _placement(view, target, edgetpu.SOURCE, stays))
    stays, by = _with_delegate(content, view, _asked(xnnpack.staying, view))
    return Placed(content, _placement(view, target, by, stays))


def _asked(staying: Callable[[View], dict[int, str]], view: View) -> dict[int, str]:
    """Return what stays by some rules, which rely on operands that a corrupt file may lack."""
    try:
        return staying(view)
    except (*MALFORMED, AssertionError, ArithmeticError) as error:
        why = str(error) or "an operator lacks an input that it needs"
        raise corrupt(why) from error


def _compiled(content: bytes, target: str) -> tuple[bytes, Placement]:
    """Return the compiled file; rewritten before, where that leaves fewer operators on the CPU."""
    first = compile_with_vela(content, target)
    left = {one.operator for one in first[1].on_cpu if one.operator is not None}
    again = _rewritten(content, left) if left else None
    if again is None:
        return first
    compiled, placement = compile_with_vela(again.content, target)
    if len(placement.on_cpu) >= len(first[1].on_cpu):
        return first
    return compiled, replace(placement, rewritten=(again.told,))


class _Rewritten(NamedTuple):
    """A file with the same outputs, and what was changed."""

    content: bytes
    told: str


def _rewritten(content: bytes, left: Collection[int]) -> _Rewritten | None:
    """Return the file with enlargements as concatenations; None where it has none of these.

    Nor where LiteRT does not run the file, so that the two cannot be compared.

    Raises:
        InternalError: the outputs, or the last feature maps, are not equal to the byte.
    """
    try:
        graph = read_graph(content)
    except ModelError:  # of a kind that passes leave alone
        return None
    copied = with_copied_pixels(graph, left)
    count = sum(o.name == ENLARGEMENT for o in graph.operators)
    count -= sum(o.name == ENLARGEMENT for o in copied.operators)
    if not count:
        return None
    feature = last_feature_map(graph, copied)
    made, wanted = write_graph(copied), write_graph(with_output(graph, feature))
    examples = random_examples(graph, examples_for(graph_macs(graph)))
    try:
        equality = compare(wanted, (write_graph(with_output(copied, feature)), made), examples)
    except StageError:  # an operator that LiteRT does not have, for one
        return None
    if equality.different:
        runtimes = ", ".join(equality.different)
        raise InternalError(f"the rewritten file does not give the same outputs in {runtimes}")
    return _Rewritten(
        made,
        f"{count} {ENLARGEMENT} became concatenations and reshapes, which the NPU takes; outputs "
        f"are equal to the byte on {equality.examples} random inputs in "
        f"{', '.join(equality.runtimes)}"
        f"{'' if equality.distinct else ', all of which give one answer'}",
    )


def _not_run(target: str) -> str:
    return (
        f"not measured: the file is compiled for {target}, which LiteRT and the wheel of TFLite "
        "Micro do not have; the stage before has the figures of the file that was compiled"
    )


def _placement(view: View, target: str, by: str, stays: Mapping[int, str]) -> Placement:
    return Placement(
        target=target,
        by=by,
        operators=len(view.nodes),
        on_cpu=tuple(_cpu_operator(view, place, reason) for place, reason in stays.items()),
    )


def _cpu_operator(view: View, place: int, reason: str) -> CpuOperator:
    node = view.nodes[place]
    tensor = node.outputs[0].name if node.outputs else ""
    return CpuOperator(operator=place, kind=node.kind, tensor=tensor, reason=reason)


def _with_delegate(
    content: bytes, view: View, expected: Mapping[int, str]
) -> tuple[dict[int, str], str]:
    """Return which operators LiteRT's delegate leaves here, with the reasons; and who says so.

    Where LiteRT does not prepare the file, the conditions alone tell.
    """
    with tempfile.TemporaryDirectory(prefix="shrink-place-") as folder:
        path = Path(folder) / "model.tflite"
        files.write_bytes(path, content)
        run = run_child(MODULE, DelegateRequest(str(path)), DelegateAnswer, timeout_s=_TIMEOUT_S)
    if run.failure is not None or run.answer is None:
        return dict(expected), "XNNPACK's conditions (LiteRT does not prepare the file here)"
    left = _left_places(len(view.nodes), run.answer.taken)
    stays = {place: expected.get(place, _UNKNOWN_REASON) for place in left}
    return stays, f"the delegate of LiteRT {run.answer.version} on this machine"


def _left_places(count: int, taken: Sequence[int]) -> list[int]:
    return sorted(set(range(count)) - set(taken))
