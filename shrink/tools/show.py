"""What `profile`, `inspect`, `data check` and `cache` found, and tables of it for people; light."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

from shrink.base.cache import CacheEntries, CacheSize
from shrink.base.figures import format_value

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod
    from rich.table import Table

_MOST_LAYERS = 12
_MOST_SAME = 3
_DAY_S = 24 * 3600
_CACHE_COLUMNS: tuple[tuple[str, JustifyMethod], ...] = (
    ("kind", "left"),
    ("holds", "left"),
    ("entries", "right"),
    ("size", "right"),
    ("oldest", "right"),
)


class LayerMemory(TypedDict):
    """What a layer holds at the batch size, the output and the weights in bytes."""

    name: str
    activation_bytes: int
    parameter_bytes: int


class PeakRow(TypedDict):
    """The peak of a training step at one batch size; None where it is not known."""

    batch_size: int
    training_peak_bytes: int | None
    training_peak_predicted_bytes: int | None


class Profile(PeakRow):
    """What `profile` found; see `shrink.tools.profile.profile`."""

    model: str
    largest_batch_size: int | None
    memory_limit_bytes: int | None
    training_host_peak_bytes: int
    curve: list[PeakRow]
    split: dict[str, int] | None
    layers: list[LayerMemory]
    devices: list[str]
    trace: list[str]
    notes: list[str]


class Bench(TypedDict):
    """What `bench` measured; see `shrink.tools.profile.bench`."""

    path: str
    p50_ms: float
    p90_ms: float
    threads: int
    examples: int
    inferences_per_s: float
    inference_peak_bytes: int | None
    file_bytes: int
    machine: str
    notes: list[str]


class KerasTensorRow(TypedDict):
    """An input or output of a Keras model; None is an open dimension."""

    name: str
    shape: list[int | None]
    dtype: str


class LayerRow(TypedDict):
    """A layer; `sparsity` is of its kernels, None where it has none."""

    name: str
    type: str
    output_shapes: list[list[int | None]]
    dtype: str
    parameters: int
    sparsity: float | None


class GroupRow(TypedDict):
    """Channels that are removed together: the layers that make them, and all that have them."""

    layers: list[str]
    channels: int
    members: list[str]


class Groups(TypedDict):
    """Which channels of a Keras model can be removed, and which layers keep theirs, and why."""

    groups: list[GroupRow]
    protected: list[dict[str, str]]


class KerasInspection(TypedDict):
    """What `inspect` found in a Keras model; groups where they were asked for."""

    path: str
    form: Literal["keras"]
    inputs: list[KerasTensorRow]
    outputs: list[KerasTensorRow]
    parameters: int
    layers: list[LayerRow]
    groups: NotRequired[list[GroupRow]]
    protected: NotRequired[list[dict[str, str]]]


class TensorRow(TypedDict):
    """A tensor of an artifact; scale and zero point where it has one of each."""

    name: str
    shape: list[int]
    dtype: str
    constant: bool
    scales: int
    scale: float | None
    zero_point: int | None


class OperatorTensors(TypedDict):
    """An operator of an artifact with its tensors."""

    name: str
    custom: bool
    inputs: list[TensorRow]
    outputs: list[TensorRow]


class PlannedTensor(TypedDict):
    """Where a file's own memory plan lays a tensor, from which operator to which."""

    name: str
    offset: int
    bytes: int
    operators: list[int]


class MemoryPlan(TypedDict):
    """A file's own memory plan."""

    size_bytes: int
    tensors: list[PlannedTensor]


class AuditRow(TypedDict):
    """What is found in an artifact; why a runtime does not run it, None where it does."""

    operators: Sequence[object]
    float_islands: list[str]
    custom_operators: list[str]
    findings: list[str]
    litert_fails: str | None
    tflm_fails: str | None


class ArtifactInspection(TypedDict):
    """What `inspect` found in a .tflite file."""

    path: str
    form: Literal["tflite"]
    file_bytes: int
    inputs: list[TensorRow]
    outputs: list[TensorRow]
    parameters: int
    nonzero_parameters: int
    macs: int | None
    macs_note: str
    arena_bytes: int | None
    arena_estimate_bytes: int | None
    arena_32_bytes: int | None
    arena_note: str
    memory_plan: MemoryPlan | None
    quantized_operators: int
    float_operators: list[str]
    operators: list[OperatorTensors]
    audit: AuditRow


class InputRange(TypedDict):
    """Shape, type and range of one input of a split's examples; None where there are none."""

    shape: list[int]
    dtype: str
    low: float | None
    high: float | None


class SplitRow(InputRange):
    """A split's examples, by class too; shape and range are those of the first input."""

    examples: int
    classes: dict[str, int]
    inputs: list[InputRange]


class DataCheck(TypedDict):
    """What `data check` found; see `shrink.tools.data_check.data_check`."""

    splits: dict[str, SplitRow]
    class_names: list[str]
    bad: list[str]
    duplicates: list[list[str]]
    suspicious: list[str]
    notes: list[str]
    examples_per_s: float
    fingerprint: NotRequired[str]
    warnings: NotRequired[list[dict[str, str | None]]]


def show_profile(result: Profile, console: Console) -> None:
    """Print the peak of a training step, its parts, and the layers that hold most."""
    measured, expected = result["training_peak_bytes"], result["training_peak_predicted_bytes"]
    console.print(f"batch size {result['batch_size']} on {', '.join(result['devices'])}")
    console.print(f"training peak  {_bytes(measured)} (allocator), predicted {_bytes(expected)}")
    console.print(f"host peak      {_bytes(result['training_host_peak_bytes'])} (whole process)")
    if result["largest_batch_size"] is not None:
        limit = _bytes(result["memory_limit_bytes"])
        console.print(f"largest batch  {result['largest_batch_size']:,} expected to fit {limit}")
    for part, held in (result["split"] or {}).items():
        console.print(f"  {part.removesuffix('_bytes').replace('_', ' ')}: {_bytes(held)}")
    curve = _table(("batch size", "right"), ("measured", "right"), ("predicted", "right"))
    uncounted = []
    for row in result["curve"]:
        peaks = (row["training_peak_bytes"], row["training_peak_predicted_bytes"])
        size = f"{row['batch_size']:,}"
        if any(peaks):
            curve.add_row(size, *("-" if p is None else _bytes(p) for p in peaks))
        else:
            uncounted.append(size)
    console.print(curve)
    if uncounted:
        console.print(f"too small for the allocator to count: batch size {', '.join(uncounted)}")
    table = _table(("layer", "left"), ("output", "right"), ("weights", "right"))
    for layer in result["layers"][:_MOST_LAYERS]:
        table.add_row(
            layer["name"], _bytes(layer["activation_bytes"]), _bytes(layer["parameter_bytes"])
        )
    console.print(table)
    more = len(result["layers"]) - _MOST_LAYERS
    if more > 0:
        console.print(f"and {more} layers with smaller outputs")
    for path in result["trace"]:
        console.print(f"trace: {path}", markup=False)
    for note in result["notes"]:
        console.print(f"note: {note}", markup=False)


def show_cache(result: CacheSize, console: Console) -> None:
    """Print what the cache holds, by kind."""
    table = _table(*_CACHE_COLUMNS, ("kept unused", "right"))
    for kind in result["kinds"]:
        age = f"{kind['unused_s'] // _DAY_S} d"
        count, size = f"{kind['entries']:,}", _bytes(kind["bytes"])
        table.add_row(kind["kind"], kind["holds"], count, size, age, f"{kind['kept_days']} d")
    console.print(table)
    total, most = _bytes(result["bytes"]), _bytes(result["limit_bytes"])
    _print_whole(f"{result['path']}: {total}, of at most {most}", console)


def show_cache_entries(result: CacheEntries, console: Console) -> None:
    """Print the entries of the cache, one a line."""
    table = _table(("kind", "left"), ("key", "left"), ("size", "right"), ("unused for", "right"))
    for entry in result["entries"]:
        hours = f"{entry['unused_s'] / 3600:,.1f} h"
        table.add_row(entry["kind"], entry["key"][:12], _bytes(entry["bytes"]), hours)
    console.print(table)


def show_inspection(result: KerasInspection | ArtifactInspection, console: Console) -> None:
    """Print a model's layers or an artifact's operators."""
    if result["form"] == "tflite":
        _show_operators(result, console)
    elif "groups" in result:
        _show_groups(result, console)
    else:
        _show_layers(result, console)


def show_data(result: DataCheck, console: Console) -> None:
    """Print the counts of a data set by class and split, and what cannot be read."""
    splits = result["splits"]
    classes = list(dict.fromkeys(name for split in splits.values() for name in split["classes"]))
    table = _table(("class", "left"), *((name, "right") for name in splits))
    labels = {name: label for label, name in enumerate(result["class_names"])}
    for name in sorted(classes, key=lambda name: labels.get(name, len(labels))):
        numbered = name if str(labels.get(name)) == name else f"{labels.get(name, '')}  {name}"
        table.add_row(numbered, *(f"{s['classes'].get(name, 0):,}" for s in splits.values()))
    table.add_row("all", *(f"{s['examples']:,}" for s in splits.values()))
    console.print(table)
    for name, split in splits.items():
        for part in split["inputs"]:
            shape = "x".join(map(str, part["shape"])) or "scalar"
            values = "" if part["low"] is None else f"{part['low']:.6g} to {part['high']:.6g}"
            console.print(f"{name}: {part['dtype']} {shape}, values {values}")
    notes = [*result["suspicious"], *_duplicates(result["duplicates"]), *result["notes"]]
    for text in [*result["bad"], *(f"note: {note}" for note in notes)]:
        console.print(text, markup=False, soft_wrap=True)
    bad = len(result["bad"])
    console.print(f"{bad} unreadable, read at {result['examples_per_s']:,.0f} examples/s")
    console.print(f"fingerprint {result['fingerprint']}")


def _duplicates(groups: list[list[str]]) -> list[str]:
    if not groups:
        return []
    copies = sum(len(group) - 1 for group in groups)
    return [f"{copies} files are copies of others, such as {' = '.join(groups[0][:_MOST_SAME])}"]


def _show_layers(result: KerasInspection, console: Console) -> None:
    _print_whole(f"{result['path']}: {result['parameters']:,} parameters", console)
    table = _table(
        ("layer", "left"),
        ("type", "left"),
        ("output", "left"),
        ("parameters", "right"),
        ("zeros", "right"),
    )
    for layer in result["layers"]:
        zeros = "" if layer["sparsity"] is None else f"{layer['sparsity']:.0%}"
        shapes = ", ".join(_shape(shape) for shape in layer["output_shapes"])
        table.add_row(layer["name"], layer["type"], shapes, f"{layer['parameters']:,}", zeros)
    console.print(table)


def _show_groups(result: KerasInspection, console: Console) -> None:
    groups = result["groups"]
    _print_whole(f"{result['path']}: {len(groups)} groups of channels", console)
    table = _table(("made by", "left"), ("channels", "right"), ("also in", "left"))
    for group in groups:
        others = [name for name in group["members"] if name not in group["layers"]]
        table.add_row(", ".join(group["layers"]), f"{group['channels']:,}", ", ".join(others))
    console.print(table)
    for entry in result["protected"]:
        console.print(f"{entry['layer']} keeps its channels: {entry['reason']}", markup=False)


def _show_operators(result: ArtifactInspection, console: Console) -> None:
    _print_whole(
        f"{result['path']}: {_bytes(result['file_bytes'])}, {result['parameters']:,} parameters, "
        f"{_count(result['macs'])} MACs, arena {_bytes(result['arena_bytes'])} "
        f"(on 32 bits about {_bytes(result['arena_32_bytes'])})",
        console,
    )
    for name, note in (("macs", result["macs_note"]), ("arena", result["arena_note"])):
        if note:
            console.print(f"{name}: {note}", markup=False)
    table = _table(
        ("operator", "left"), ("inputs", "left"), ("weights", "left"), ("output", "left")
    )
    for operator in result["operators"]:
        moving = [t for t in operator["inputs"] if not t["constant"]]
        fixed = [t for t in operator["inputs"] if t["constant"]]
        table.add_row(
            operator["name"], _tensors(moving), _tensors(fixed), _tensors(operator["outputs"])
        )
    console.print(table)
    floats = ", ".join(sorted(set(result["float_operators"]))) or "none"
    console.print(f"{result['quantized_operators']} quantized operators; float operators: {floats}")
    for line in _audit_lines(result["audit"]):
        console.print(line, markup=False)
    if result["memory_plan"]:
        _show_memory_plan(result["memory_plan"], console)


def _show_memory_plan(plan: MemoryPlan, console: Console) -> None:
    console.print(
        f"memory plan of the file: {len(plan['tensors'])} tensors in {_bytes(plan['size_bytes'])}"
    )
    table = _table(
        ("tensor", "left"), ("offset", "right"), ("bytes", "right"), ("operators", "left")
    )
    for tensor in sorted(plan["tensors"], key=lambda one: (one["operators"], one["offset"])):
        first, last = tensor["operators"]
        table.add_row(
            tensor["name"], f"{tensor['offset']:,}", f"{tensor['bytes']:,}", f"{first}-{last}"
        )
    console.print(table)


def _audit_lines(audit: AuditRow) -> list[str]:
    fails = (("LiteRT", audit["litert_fails"]), ("TFLite Micro", audit["tflm_fails"]))
    runs = [f"{name}: {'runs it' if why is None else why}" for name, why in fails]
    islands = ", ".join(sorted(set(audit["float_islands"]))) or "none"
    return [*runs, f"float islands: {islands}", *(f"found: {text}" for text in audit["findings"])]


def _print_whole(line: str, console: Console) -> None:
    """Print a line that programs read: as it is, whatever the width."""
    console.print(line, markup=False, soft_wrap=True)


def _table(*columns: tuple[str, JustifyMethod]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in columns:
        table.add_column(name, justify=justify, overflow="fold")
    return table


def _bytes(value: int | None) -> str:
    return "unknown" if value is None else format_value(value, "bytes")


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _shape(shape: list[int | None]) -> str:
    return "x".join("?" if size is None else str(size) for size in shape[1:]) or "scalar"


def _tensors(tensors: list[TensorRow]) -> str:
    return " ".join(f"{t['dtype']}[{'x'.join(map(str, t['shape']))}]" for t in tensors)
