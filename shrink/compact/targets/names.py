"""The accelerators and delegates that a file can be placed on; light."""

from __future__ import annotations

import importlib.util
from typing import Literal, get_args

from shrink.base.errors import ResourceError
from shrink.base.packages import extra_hint

Npu = Literal[
    "ethos-u55-32",
    "ethos-u55-64",
    "ethos-u55-128",
    "ethos-u55-256",
    "ethos-u65-256",
    "ethos-u65-512",
    "ethos-u85-128",
    "ethos-u85-256",
    "ethos-u85-512",
    "ethos-u85-1024",
    "ethos-u85-2048",
]
"""What Vela compiles for, by its own names of accelerator configurations."""
PlacedTarget = Literal["xnnpack", Npu]
"""Targets for which each operator has a place; the others are runtimes whose memory counts."""

NPUS: tuple[str, ...] = get_args(Npu)
PLACED: tuple[str, ...] = get_args(PlacedTarget)


def check_vela(target: str) -> None:
    """Raise `ResourceError` where Vela is not installed, which compiles for this target."""
    if importlib.util.find_spec("ethosu") is None:
        raise ResourceError(
            f"Vela, which compiles for {target}, is not installed",
            subject=f"target: {target}",
            hint=extra_hint("vela"),
        )
