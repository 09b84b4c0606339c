"""Tables of `profile`, `inspect`, `data check` and `cache` on the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shrink.base.figures import format_value
from shrink.contract.findings import (
    ArtifactInspection,
    ArtifactTensor,
    DataCheck,
    GroupRow,
    KerasInspection,
    Profile,
    Suitability,
)
from shrink.report.page import printable

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod

    from shrink.base.cache import CacheSize, Entry

_MOST_LAYERS = 12
_MOST_BARS, _BARS = 60, "▁▂▃▄▅▆▇█"
_MOST_SAME = 3
_DAY_S = 24 * 3600


def show_profile(result: Profile, console: Console) -> None:
    """Print the peak of a training step, its parts, and the layers that hold most."""
    measured, expected = result.training_peak_bytes, result.training_peak_predicted_bytes
    console.print(f"batch size {result.batch_size} on {', '.join(result.devices)}")
    console.print(f"training peak  {_bytes(measured)} (allocator), predicted {_bytes(expected)}")
    console.print(f"host peak      {_bytes(result.training_host_peak_bytes)} (whole process)")
    if result.largest_batch_size is not None:
        limit = _bytes(result.memory_limit_bytes)
        console.print(f"largest batch  {result.largest_batch_size:,} expected to fit {limit}")
    for part, held in (result.split or {}).items():
        console.print(f"  {part.removesuffix('_bytes').replace('_', ' ')}: {_bytes(held)}")
    peaks = {
        f"{row.batch_size:,}": (row.training_peak_bytes, row.training_peak_predicted_bytes)
        for row in result.curve
    }
    curve = [
        (size, *("-" if peak is None else _bytes(peak) for peak in pair))
        for size, pair in peaks.items()
        if any(pair)
    ]
    _print_table(console, (">batch size", ">measured", ">predicted"), curve)
    if uncounted := [size for size, pair in peaks.items() if not any(pair)]:
        console.print(f"too small for the allocator to count: batch size {', '.join(uncounted)}")
    if result.step:
        peak = max(result.step, key=lambda moment: moment.alive_bytes)
        each = -(-len(result.step) // _MOST_BARS)
        highest = [
            max(moment.alive_bytes for moment in result.step[start : start + each])
            for start in range(0, len(result.step), each)
        ]
        bars = (_BARS[(len(_BARS) - 1) * one // max(peak.alive_bytes, 1)] for one in highest)
        if printable(_BARS, console.encoding) == _BARS:
            console.print("outputs and their gradients over a step, by shapes:")
            console.print(f"  {''.join(bars)}")
        console.print(
            f"most in the {peak.phase} pass of {peak.layer}: {_bytes(peak.alive_bytes)}, held by "
            "these layers:"
        )
    layers = [
        (
            layer.name,
            *map(_bytes, (layer.peak_bytes, layer.activation_bytes, layer.parameter_bytes)),
        )
        for layer in result.layers[:_MOST_LAYERS]
    ]
    _print_table(console, ("layer", ">at the peak", ">output", ">weights"), layers)
    more = len(result.layers) - _MOST_LAYERS
    if more > 0:
        console.print(f"and {more} smaller layers")
    for path in result.trace:
        console.print(f"trace: {path}", markup=False)
    for note in result.notes:
        console.print(f"note: {note}", markup=False)


def show_cache(result: CacheSize, console: Console) -> None:
    """Print what the cache holds, by kind."""
    rows = [
        (
            kind.kind,
            kind.holds,
            f"{kind.entries:,}",
            _bytes(kind.bytes),
            f"{kind.unused_s // _DAY_S} d",
            f"{kind.kept_days} d",
        )
        for kind in result.kinds
    ]
    heads = ("kind", "holds", ">entries", ">size", ">oldest", ">kept unused")
    _print_table(console, heads, rows)
    total, most = _bytes(result.bytes), _bytes(result.limit_bytes)
    _print_whole(f"{result.path}: {total}, of at most {most}", console)


def show_cache_entries(entries: Iterable[Entry], console: Console) -> None:
    """Print the entries of the cache, one a line."""
    rows = [
        (one.kind, one.path.stem[:12], _bytes(one.bytes), f"{one.unused_s / 3600:,.1f} h")
        for one in entries
    ]
    _print_table(console, ("kind", "key", ">size", ">unused for"), rows)


def show_inspection(result: KerasInspection | ArtifactInspection, console: Console) -> None:
    """Print a model's layers or an artifact's operators."""
    if isinstance(result, ArtifactInspection):
        _show_operators(result, console)
    elif result.groups is not None:
        _show_groups(result, result.groups, console)
    else:
        _print_whole(f"{result.path}: {result.parameters:,} parameters", console)
        rows = [
            (
                layer.name,
                layer.type,
                ", ".join(_shape(shape) for shape in layer.output_shapes),
                f"{layer.parameters:,}",
                "" if layer.sparsity is None else f"{layer.sparsity:.0%}",
            )
            for layer in result.layers
        ]
        _print_table(console, ("layer", "type", "output", ">parameters", ">zeros"), rows)


def show_data(result: DataCheck, console: Console) -> None:
    """Print the counts of a data set by class and split, and what cannot be read."""
    splits = result.splits
    classes = list(dict.fromkeys(name for split in splits.values() for name in split.classes))
    labels = {name: label for label, name in enumerate(result.class_names)}
    rows = []
    for name in sorted(classes, key=lambda name: labels.get(name, len(labels))):
        numbered = name if str(labels.get(name)) == name else f"{labels.get(name, '')}  {name}"
        rows.append((numbered, *(f"{s.classes.get(name, 0):,}" for s in splits.values())))
    rows.append(("all", *(f"{s.examples:,}" for s in splits.values())))
    _print_table(console, ("class", *(f">{name}" for name in splits)), rows)
    for name, split in splits.items():
        for part in split.inputs:
            shape = "x".join(map(str, part.shape)) or "scalar"
            values = "" if part.low is None else f"{part.low:.6g} to {part.high:.6g}"
            console.print(f"{name}: {part.dtype} {shape}, values {values}")
    notes = [*result.suspicious, *_duplicates(result.duplicates), *result.notes]
    for text in [*result.bad, *(f"note: {note}" for note in notes)]:
        console.print(text, markup=False, soft_wrap=True)
    bad = len(result.bad)
    console.print(f"{bad} unreadable, read at {result.examples_per_s:,.0f} examples/s")
    console.print(f"fingerprint {result.fingerprint}")


def _duplicates(groups: tuple[tuple[str, ...], ...]) -> list[str]:
    if not groups:
        return []
    copies = sum(len(group) - 1 for group in groups)
    return [f"{copies} files are copies of others, such as {' = '.join(groups[0][:_MOST_SAME])}"]


def _show_groups(result: KerasInspection, groups: tuple[GroupRow, ...], console: Console) -> None:
    _print_whole(f"{result.path}: {len(groups)} groups of channels", console)
    rows = []
    for group in groups:
        others = [name for name in group.members if name not in group.layers]
        rows.append((", ".join(group.layers), f"{group.channels:,}", ", ".join(others)))
    _print_table(console, ("made by", ">channels", "also in"), rows)
    for entry in result.protected or ():
        console.print(f"{entry.layer} keeps its channels: {entry.reason}", markup=False)


def _show_operators(result: ArtifactInspection, console: Console) -> None:
    arena = _bytes(result.arena_bytes)
    if result.arena_32_bytes is not None:
        arena += (
            f" (on 32 bits about {_bytes(result.arena_32_bytes)} with CMSIS-NN, "
            f"{_bytes(result.arena_32_reference_bytes)} with reference kernels)"
        )
    _print_whole(
        f"{result.path}: {_bytes(result.file_bytes)}, {result.parameters:,} parameters, "
        f"{'unknown' if result.macs is None else f'{result.macs:,}'} MACs, "
        f"arena {arena}",
        console,
    )
    for name, note in (("macs", result.macs_note), ("arena", result.arena_note)):
        if note and note != result.audit.tflm_fails:  # which is printed at the end
            console.print(f"{name}: {note}", markup=False)
    rows = [
        (
            operator.name,
            _tensors(one for one in operator.inputs if not one.constant),
            _tensors(one for one in operator.inputs if one.constant),
            _tensors(operator.outputs),
        )
        for operator in result.operators
    ]
    _print_table(console, ("operator", "inputs", "weights", "output"), rows)
    floats = ", ".join(sorted(set(result.float_operators))) or "none"
    console.print(f"{result.quantized_operators} quantized operators; float operators: {floats}")
    for line in _audit_lines(result.audit):
        console.print(line, markup=False)


def _audit_lines(audit: Suitability) -> list[str]:
    fails = (("LiteRT", audit.litert_fails), ("TFLite Micro", audit.tflm_fails))
    runs = [
        f"{name}: {'runs it' if why is None else why.removeprefix(f'{name} ')}"
        for name, why in fails
    ]
    islands = ", ".join(sorted(set(audit.float_islands))) or "none"
    return [*runs, f"float islands: {islands}", *(f"found: {text}" for text in audit.findings)]


def _print_whole(line: str, console: Console) -> None:
    """Print a line that programs read: as it is, whatever the width."""
    console.print(line, markup=False, soft_wrap=True)


def _print_table(console: Console, heads: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table; columns whose heads begin with `>` are aligned at the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        is_number = head.startswith(">")
        justify: JustifyMethod = "right" if is_number else "left"
        table.add_column(head.removeprefix(">"), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _bytes(value: int | None) -> str:
    return "unknown" if value is None else format_value(value, "bytes")


def _shape(shape: tuple[int | None, ...]) -> str:
    return "x".join("?" if size is None else str(size) for size in shape[1:]) or "scalar"


def _tensors(tensors: Iterable[ArtifactTensor]) -> str:
    return " ".join(f"{t.dtype}[{'x'.join(map(str, t.shape))}]" for t in tensors)
