"""Child process: which operators of a file LiteRT's XNNPACK delegate takes here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from shrink.base.child import Channel, serve

MODULE = "shrink.compact.targets.xnnpack_child"
_DELEGATE = "DELEGATE"


class _Executed(TypedDict):
    """An operator as LiteRT tells of it, as far as it is read."""

    op_name: str
    inputs: Sequence[int]
    outputs: Sequence[int]


@dataclass(frozen=True)
class DelegateRequest:
    """The .tflite file to prepare."""

    path: str


@dataclass(frozen=True)
class DelegateAnswer:
    """What LiteRT runs: places of operators that its delegate takes, and its own version."""

    taken: list[int]
    version: str


def ask(request: DelegateRequest, _: Channel) -> DelegateAnswer:
    """Prepare a file in LiteRT with its default delegate; a file that it refuses ends this."""
    import importlib.metadata

    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=request.path, num_threads=1)
    interpreter.allocate_tensors()
    version = importlib.metadata.version("ai-edge-litert")
    return DelegateAnswer(sorted(taken(interpreter._get_ops_details())), version)


def taken(executed: Sequence[_Executed]) -> set[int]:
    """Return the operators that lie between the inputs and outputs of delegated parts.

    Args:
        executed: the file's operators in order, and behind them an entry for each part.
    """
    own = [one for one in executed if one["op_name"] != _DELEGATE]
    writers = {int(t): place for place, one in enumerate(own) for t in one["outputs"]}
    found: set[int] = set()
    for part in (one for one in executed if one["op_name"] == _DELEGATE):
        outside = {int(t) for t in part["inputs"]}
        ahead = [int(t) for t in part["outputs"]]
        while ahead:
            tensor = ahead.pop()
            place = writers.get(tensor)
            if place is not None and place not in found and tensor not in outside:
                found.add(place)
                ahead += [int(t) for t in own[place]["inputs"]]
    return found


if __name__ == "__main__":
    serve({DelegateRequest: ask})
