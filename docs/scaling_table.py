"""Prints the table of docs/scaling.md: bytes per update and expected efficiency of many GPUs."""

from __future__ import annotations

import argparse
import sys

GPUS = (8, 64, 512)
BYTES_PER_GRADIENT = 4
LATENCY_S = 20e-6
"""Of one message between two machines; an assumption, about that of Ethernet with RoCE."""


def bytes_moved(parameters: int, gpus: int) -> float:
    """Return the bytes that each GPU sends (and receives) per update, in a ring all-reduce.

    2 · (N - 1) / N times the gradients (Patarasuk & Yuan 2009), which are float32.
    """
    return 2 * (gpus - 1) / gpus * parameters * BYTES_PER_GRADIENT


def efficiency(parameters: int, step_s: float, gpus: int, bandwidth: float) -> float:
    """Return the share of the time in which GPUs compute, where nothing overlaps.

    Args:
        parameters: trainable weights.
        step_s: seconds of one update on one GPU with its share of the global batch.
        gpus: how many train together.
        bandwidth: bytes per second of the slowest link in the ring.
    """
    moving_s = bytes_moved(parameters, gpus) / bandwidth + 2 * (gpus - 1) * LATENCY_S
    return step_s / (step_s + moving_s)


def table(parameters: int, steps_s: tuple[float, ...], gigabits: float) -> str:
    """Return a Markdown table with a row per number of GPUs, a column per step."""
    bandwidth = gigabits * 1e9 / 8
    heads = [f"step of {1000 * step_s:.0f} ms" for step_s in steps_s]
    lines = [
        "| GPUs | bytes per GPU and update | " + " | ".join(heads) + " |",
        "|---:|---:|" + "---:|" * len(heads),
    ]
    for gpus in GPUS:
        shares = [f"{efficiency(parameters, s, gpus, bandwidth):.0%}" for s in steps_s]
        moved = f"{bytes_moved(parameters, gpus) / 1e6:.1f} MB"
        lines.append(f"| {gpus} | {moved} | " + " | ".join(shares) + " |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=int, default=25_600_000)
    parser.add_argument("--step-s", type=float, nargs="+", default=[0.05, 0.2, 1.0])
    parser.add_argument("--gigabits", type=float, default=100.0)
    given = parser.parse_args()
    sys.stdout.write(table(given.parameters, tuple(given.step_s), given.gigabits) + "\n")


if __name__ == "__main__":
    main()
