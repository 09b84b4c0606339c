"""Everything that shrink promises of a GPU, on the GPU of this machine, as one Markdown table.

Run: python -m tests.benchmarks.gpu [--output gpu.md] [--minutes 10]

Each check trains small networks on random examples in processes of its own; nothing is downloaded.
The table is printed, and written where `--output` says so. The exit code is 0 where every check is
met, 1 where one is not or there was no time for it, and 5, without any figure, where TensorFlow
sees no GPU. `python -m pytest -m gpu` asserts the same checks. docs/gpu.md says what each means.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shrink import __version__
from shrink.base.errors import ResourceError
from shrink.base.figures import format_value
from tests.benchmarks.harness import say
from tests.engine._run import run_in_fresh_process

_SCENARIOS = "tests.benchmarks.gpu_scenarios"
_MOST_S = 240.0
BATCH, SMALL = 256, 64
MOST_OFF = 0.08
"""Of a predicted peak, as on a CPU."""
MOST_APART = 1e-5
"""Of any weight after six updates of Adam, where sums are taken in another order."""
LEAST_SPEED = 0.9
"""Of Keras' own `fit`, in one micro-batch."""
MEBIBYTE = 1 << 20


class OutOfTime(Exception):
    """There is no time left for a check."""


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        check: what was looked at.
        expected: predicted, or what it is held to.
        measured: what came out.
        is_met: whether that is as it should be; None where there is nothing to hold it to.
    """

    check: str
    expected: str
    measured: str
    is_met: bool | None = True


@dataclass
class Bench:
    """Runs trainings in processes of their own, within a time.

    Attributes:
        seconds: for all of them together.
        cpu: whether a CPU stands for the card, as in the tests of this benchmark: a limit is then
            one of TensorFlow's CPU allocator, set by the environment.
    """

    seconds: float = 600.0
    cpu: bool = False
    _began: float = field(default_factory=time.monotonic)

    def call(self, function: str, *, limit: int | None = None, **arguments: Any) -> Any:
        """Return what a scenario gives.

        Args:
            function: of `tests.benchmarks.gpu_scenarios`.
            limit: bytes at which the allocator itself refuses.
            arguments: the function's.

        Raises:
            OutOfTime: the time is up.
        """
        left = self.seconds - (time.monotonic() - self._began)
        if left <= 0:
            raise OutOfTime
        environment: dict[str, str] = {"TF_CPP_MIN_LOG_LEVEL": "2"}
        if self.cpu:
            environment |= {"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_ENABLE_ONEDNN_OPTS": "0"}
            if limit is not None:
                environment["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(limit // MEBIBYTE)
        elif limit is not None:
            arguments["memory_limit"] = limit
        try:
            return run_in_fresh_process(
                _SCENARIOS,
                function,
                environment=environment,
                timeout_s=min(left, _MOST_S),
                **arguments,
            )
        except subprocess.TimeoutExpired as error:
            raise OutOfTime from error

    def weights(self, **arguments: Any) -> tuple[dict[str, Any], list[np.ndarray]]:
        """Return what `trained` gives, and the weights afterwards."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "weights.npz"
            result = self.call("trained", weights=str(path), **arguments)
            with np.load(path) as saved:
                return result, [saved[name] for name in saved.files]


def _apart(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


def _bytes(value: float) -> str:
    return format_value(value, "bytes")


def predicted_peaks(bench: Bench) -> list[Row]:
    """Planned under half of what a whole batch takes; predicted and measured peak."""
    rows = []
    for name in ("conv", "residual", "recurrent", "attention"):
        whole = bench.call("trained", architecture=name, batch_size=BATCH, micro_batch_size=BATCH)
        limit = int(whole["peak"] * 0.5)
        micro, predicted = bench.call(
            "planned", architecture=name, batch_size=BATCH, memory_limit=limit
        )
        result = bench.call(
            "trained",
            architecture=name,
            batch_size=BATCH,
            micro_batch_size=micro,
            memory_limit=limit,
        )
        off = math.inf if predicted is None else result["peak"] / predicted - 1
        met = abs(off) <= MOST_OFF and result["peak"] <= limit and not result["events"]
        rows.append(
            Row(
                f"peak of `{name}`, {BATCH} as micro-batches of {micro}, limit {_bytes(limit)}",
                "no prediction" if predicted is None else f"{_bytes(predicted)} predicted",
                f"{_bytes(result['peak'])} ({off:+.1%}); whole batch {_bytes(whole['peak'])}",
                met,
            )
        )
    return rows


def exactness(bench: Bench) -> list[Row]:
    """The same weights whatever the micro-batches are."""
    _, whole = bench.weights(architecture="conv", batch_size=SMALL, micro_batch_size=SMALL)
    _, parts = bench.weights(architecture="conv", batch_size=SMALL, micro_batch_size=10)
    found = _apart(whole, parts)
    return [
        Row(
            f"exactness: {SMALL} as micro-batches of 10, the last of 4",
            f"weights at most {MOST_APART:.0e} apart",
            f"{found:.1e}",
            found <= MOST_APART,
        )
    ]


def logical_gpus(bench: Bench) -> list[Row]:
    """Two logical GPUs on one card train what one does."""
    alone, whole = bench.weights(architecture="conv", batch_size=SMALL, micro_batch_size=SMALL)
    limit = None if bench.cpu else 2 * alone["peak"] + 256 * MEBIBYTE
    result, parts = bench.weights(
        architecture="conv",
        batch_size=SMALL,
        micro_batch_size=SMALL,
        replicas=2,
        memory_limit=limit,
    )
    found = _apart(whole, parts)
    return [
        Row(
            "two logical GPUs on one card",
            f"weights at most {MOST_APART:.0e} apart from one's",
            f"{found:.1e}; {_bytes(result['peak'])} each, {_bytes(alone['peak'])} alone",
            found <= MOST_APART,
        )
    ]


def two_gpus(bench: Bench) -> list[Row]:
    """Two physical GPUs, whose gradients NCCL adds up, train what one does."""
    what, expected = "two GPUs with NCCL", f"weights at most {MOST_APART:.0e} apart from one's"
    if len(bench.call("devices")["gpus"]) < 2 and not bench.cpu:
        return [Row(what, expected, "not run: this machine has one GPU", None)]
    given: dict[str, Any] = {"architecture": "conv", "batch_size": BATCH}
    alone, whole = bench.weights(**given, micro_batch_size=BATCH)
    both, parts = bench.weights(**given, micro_batch_size=BATCH // 2, replicas=2)
    found = _apart(whole, parts)
    speed = both["examples_per_s"] / alone["examples_per_s"]
    measured = f"{found:.1e}; {both['examples_per_s']:,.0f} examples a second ({speed:.2f} of one)"
    return [Row(what, expected, measured, found <= MOST_APART)]


def overhead(bench: Bench) -> list[Row]:
    """What a stage costs beside its steps: a fresh process, and the first step."""
    began = time.monotonic()
    result = bench.call("trained", architecture="conv", batch_size=BATCH, micro_batch_size=BATCH)
    process_s = time.monotonic() - began - result["training_s"]
    return [
        Row("a stage's process, without its steps", "", f"{process_s:.1f} s", None),
        Row(
            "its first step",
            f"{_bytes(result['later_peak'])} in later steps",
            f"{_bytes(result['first_peak'])}, {result['first_s']:.1f} s",
            None,
        ),
    ]


def out_of_memory(bench: Bench) -> list[Row]:
    """The allocator refuses a whole batch: the step is made again in halves, with the same end."""
    free, whole = bench.weights(architecture="conv", batch_size=BATCH, micro_batch_size=BATCH)
    limit = int(free["peak"] * 0.7)
    result, again = bench.weights(
        architecture="conv", batch_size=BATCH, micro_batch_size=BATCH, limit=limit
    )
    return [
        _recovered("recovery from an OOM of the allocator", limit, result, _apart(whole, again))
    ]


def fragmentation(bench: Bench) -> list[Row]:
    """Enough is free, but in pieces: the step is made again in halves."""
    free, whole = bench.weights(architecture="conv", batch_size=BATCH, micro_batch_size=BATCH)
    limit = int(free["peak"] * 1.25)
    result, again = bench.weights(
        architecture="conv",
        batch_size=BATCH,
        micro_batch_size=BATCH,
        limit=limit,
        held_bytes=int(limit * 0.25),
    )
    what = f"recovery from fragmentation, {result['blocks']} blocks of 1 MiB with holes between"
    return [_recovered(what, limit, result, _apart(whole, again))]


def _recovered(what: str, limit: int, result: Mapping[str, Any], apart: float) -> Row:
    sizes = [str(size) for _, size in result["events"]]
    steps = " → ".join([*sizes, str(result["micro_batch_size"])])
    return Row(
        f"{what}, limit {_bytes(limit)}",
        f"smaller micro-batches, weights at most {MOST_APART:.0e} apart",
        f"{steps}; {apart:.1e}" if sizes else "no step ran out of memory",
        bool(sizes) and apart <= MOST_APART,
    )


def mixed_precision(bench: Bench) -> list[Row]:
    """float16 takes less memory, and the loss stays finite."""
    given: dict[str, Any] = {
        **{"architecture": "conv", "batch_size": BATCH, "micro_batch_size": BATCH, "steps": 12}
    }
    full = bench.call("trained", **given)
    half = bench.call("trained", **given, precision="mixed_float16")
    peak, speed = half["peak"] / full["peak"], half["examples_per_s"] / full["examples_per_s"]
    return [
        Row(
            "`mixed_float16` against `float32`",
            "a smaller peak, a finite loss",
            f"peak {peak:.2f}, speed {speed:.2f}, loss {half['loss']:.3f} and {full['loss']:.3f}",
            peak < 1 and math.isfinite(half["loss"]),
        )
    ]


def throughput(bench: Bench) -> list[Row]:
    """One micro-batch a step, beside Keras' own loop on the same batches."""
    rows = []
    for name in ("conv", "residual"):
        given: dict[str, Any] = {"architecture": name, "batch_size": BATCH, "steps": 20}
        keras = bench.call("fitted", **given)
        ours = bench.call("trained", **given, micro_batch_size=BATCH)
        ratio = ours["examples_per_s"] / keras["examples_per_s"]
        rows.append(
            Row(
                f"throughput of `{name}`, batches of {BATCH}",
                f"at least {LEAST_SPEED} of Keras' `fit`: {keras['examples_per_s']:,.0f} a second",
                f"{ours['examples_per_s']:,.0f} a second ({ratio:.2f})",
                ratio >= LEAST_SPEED,
            )
        )
    return rows


def nvml_beside(bench: Bench) -> list[Row]:
    """What the driver says that the process holds, beside what the allocator counts."""
    result = bench.call("trained", architecture="conv", batch_size=BATCH, micro_batch_size=BATCH)
    return [
        Row(
            "NVML beside the allocator's peak",
            f"{_bytes(result['peak'])} of tensors",
            result["nvml"] or "not known: nvidia-ml-py or the driver does not tell of this process",
            None,
        )
    ]


CHECKS: tuple[Callable[[Bench], list[Row]], ...] = (
    *(exactness, out_of_memory, fragmentation, logical_gpus, two_gpus),
    *(predicted_peaks, mixed_precision, throughput, overhead, nvml_beside),
)


def rows_of(bench: Bench) -> list[Row]:
    """Return the rows of all checks; one that failed, or was out of time, says so."""
    found = []
    for check in CHECKS:
        what = (check.__doc__ or "").partition("\n")[0]
        try:
            found += check(bench)
        except OutOfTime:
            found.append(Row(what, "", "not run: the time was up", False))
        except RuntimeError as error:
            last = str(error).strip().splitlines()[-1]
            found.append(Row(what, "", f"failed: {last[:200]}", False))
    return found


def card(nvml: Any = None) -> list[str]:
    """Return the driver's version, and each card with its memory, by NVML.

    Args:
        nvml: the module `pynvml` of nvidia-ml-py; by default the installed one.
    """
    try:
        nvml = nvml or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:
        return [f"driver: not known ({error})"]
    try:
        lines = [f"driver: {_text(nvml.nvmlSystemGetDriverVersion())}"]
        for index in range(nvml.nvmlDeviceGetCount()):
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(device)
            name = _text(nvml.nvmlDeviceGetName(device))
            held = f"{_bytes(memory.total)}, {_bytes(memory.used)} of it in use before the checks"
            lines.append(f"card {index}: {name}, {held}")
        return lines
    except nvml.NVMLError as error:
        return [f"driver: not known ({error})"]
    finally:
        nvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    """Return text, which older versions of nvidia-ml-py give as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def document(about: Mapping[str, Any], cards: Sequence[str], rows: Sequence[Row]) -> str:
    """Return what the checks ran on and their table, as Markdown."""
    gpus = about["gpus"]
    seen = [f"{one['name']} (compute capability {one['compute_capability']})" for one in gpus]
    built = f"built for CUDA {about['cuda']}, cuDNN {about['cudnn']}"
    lines = [
        f"# GPU checks of shrink {__version__}",
        "",
        f"- date: {datetime.date.today().isoformat()}",
        f"- TensorFlow: {about['tensorflow']}, {built}",
        f"- GPUs that TensorFlow sees: {', '.join(seen)}",
        *(f"- {line}" for line in cards),
        "",
        "| check | expected | measured | |",
        "|---|---|---|---|",
    ]
    words = {True: "ok", False: "**missed**", None: ""}
    for row in rows:
        cells = (row.check, row.expected, row.measured, words[row.is_met])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    met = sum(row.is_met is True for row in rows)
    held = sum(row.is_met is not None for row in rows)
    return "\n".join([*lines, "", f"{met} of {held} checks are met.", ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, help="a Markdown file to write the table to")
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args(arguments)
    bench = Bench(60 * options.minutes)
    about = bench.call("devices")
    if not about["gpus"]:
        sys.stderr.write(
            f"TensorFlow {about['tensorflow']} sees no GPU here, and there are no figures without"
            " one.\n  hint: install the extra: python -m pip install -e '.[gpu]';"
            " `nvidia-smi` shows whether the driver works\n"
        )
        return ResourceError.exit_code
    rows = rows_of(bench)
    text = document(about, card(), rows)
    say(text)
    if options.output is not None:
        options.output.write_text(text, encoding="utf-8")
    return 1 if any(row.is_met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
