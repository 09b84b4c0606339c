"""Accuracy against compressed size of one trained model, beside what other tools make of it.

Run: python -m tests.benchmarks.bench_peers_plot --model model.h5 --data pictures
         [--pruned FILE.keras ...] [--points FILE ...] [--skip NAME ...] [--plot plot.svg]

The model is MLPerf Tiny's ResNet8, `--data` a folder {train,test}/<class>/*. Each point is a line
of JSON: nothing is trained, but `--pruned` takes models that `bench_channels --save`
fine-tuned; `--points` reads lines that were printed before. Accuracy is on all test images,
through LiteRT, bytes are those of the artifact and of `gzip -9`. The other tools' figures are typed
in below: same model, same data, 2 epochs of fine-tuning where they fine-tune, one run each. In the
end every pruning and clustering row is listed with the best point that is no larger.
"""

from __future__ import annotations

import argparse
import html
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import accuracy_of, say, say_json

Point = dict[str, Any]
_PEERS: tuple[tuple[str, int, float, bool], ...] = (
    ("TFLite converter, dynamic range", 81_648, 83.21, False),
    ("TFLite converter, int8", 78_822, 82.91, False),
    ("tfmot pruning 50 %, int8", 58_360, 81.20, True),
    ("tfmot pruning 80 %, int8", 32_787, 64.86, True),
    ("tfmot clustering 16, int8", 57_556, 82.66, True),
    ("tfmot QAT", 78_873, 83.66, False),
    ("tfmot PQAT 50 %", 58_622, 82.46, True),
    ("tfmot PCQAT 50 % / 16", 46_783, 82.19, True),
    ("MCT int8", 79_567, 83.24, False),
    ("MCT structured pruning to 75 %, int8", 52_705, 78.95, True),
    ("NNCF int8", 80_789, 80.11, False),
    ("NNCF filter pruning 40 % (pruned nothing), int8", 78_725, 83.20, True),
    ("ai-edge-quantizer int8", 78_674, 82.19, False),
    ("ai-edge-quantizer int4 weights", 37_447, 41.47, False),
)
"""Tool and recipe, `gzip -9` bytes, test accuracy in percent, whether it prunes or clusters."""

_SCHEMES: dict[str, dict[str, Any]] = {
    "int8": {"scheme": "static_wi8_ai8"},
    "mixed 64 KB": {"scheme": "mixed", "file_bytes": "64KB"},
    "mixed 58 KB": {"scheme": "mixed", "file_bytes": "58KB"},
    "int4, dynamic": {"scheme": "dynamic_wi4_afp32"},
}
_UNTRAINED = {"87.5 % of one layer": 8 / 64, "75 % of one layer": 16 / 64}
_OF_PRUNED: dict[str, dict[str, Any]] = {
    "int8": {"scheme": "static_wi8_ai8"},
    "int4, dynamic": {"scheme": "dynamic_wi4_afp32"},
}
_STYLE = (
    ".plot{overflow:visible}"
    "text{font:12px sans-serif;fill:#333}.tick{fill:#666;font-size:11px}.middle{text-anchor:middle}"
    ".end{text-anchor:end}.grid{stroke:#ddd}.axis{stroke:#666}.ours{fill:#1b6ac9}.peer{fill:#fff;"
    "stroke:#c0392b;stroke-width:2}.curve{fill:none;stroke:#1b6ac9;stroke-dasharray:5 4}"
    ".title{font-weight:600}.leader{stroke:#999}"
    ".label{paint-order:stroke;stroke:#fff;stroke-width:3px}"
)
_LEAST_SHOWN = 74.0
_WIDTH, _HEIGHT, _MARGIN, _ROW = 640, 560, 330, 15
_LEGEND = (
    '<text x="12" y="22" class="title">One trained ResNet8 on CIFAR-10</text>'
    '<circle class="ours" cx="18" cy="40" r="5"/><text x="30" y="44">shrink; '
    "the dashed line joins those that no other of them beats</text>"
    '<circle class="peer" cx="430" cy="40" r="5"/><text x="442" y="44">other tools</text>'
)


def main() -> None:
    """Print every point, compare, and draw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pruned", type=Path, nargs="*", default=())
    parser.add_argument("--points", type=Path, nargs="*", default=())
    parser.add_argument("--skip", nargs="*", default=(), help="names of points not to measure")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    points = [json.loads(line) for file in arguments.points for line in file.open()]
    skip = {*arguments.skip, *(point["name"] for point in points)}
    with tempfile.TemporaryDirectory() as folder:
        for name, source, scheme in _wanted(arguments, Path(folder), skip):
            points.append({"name": name, **measure(source, scheme, arguments.data, Path(folder))})
            say_json(points[-1])
    for line in compared(points):
        say(line)
    if arguments.plot:
        arguments.plot.write_text(drawn(points), encoding="utf-8")


def _wanted(
    arguments: argparse.Namespace, folder: Path, skip: set[str]
) -> list[tuple[str, Path, dict[str, Any]]]:
    wanted = [(name, arguments.model, scheme) for name, scheme in _SCHEMES.items()]
    for label, ratio in _UNTRAINED.items():
        names = {f"{label}, {kind}" for kind in _OF_PRUNED}
        if names - skip:
            file = prune(arguments.model, ratio, arguments.data, folder)
            wanted += [(f"{label}, {kind}", file, s) for kind, s in _OF_PRUNED.items()]
    for file in arguments.pruned:
        wanted += [(f"pruned {file.stem}, {kind}", file, s) for kind, s in _OF_PRUNED.items()]
    return [one for one in wanted if one[0] not in skip]


def prune(model: Path, ratio: float, data: Path, folder: Path) -> Path:
    """Return a model without some channels of the widest layer, by least squares, not trained."""
    from shrink.stages.prune.config import PruneConfig
    from shrink.stages.prune.run import run

    config = PruneConfig(
        method="channels", importance="least_squares", ratios={"conv2d_6": ratio}, epochs=0
    )
    pruned = run(config, _context("prune", model, data, folder)).model
    assert pruned is not None
    path = folder / f"{ratio}.keras"
    pruned.save(path)
    return path


def measure(model: Path, scheme: dict[str, Any], data: Path, folder: Path) -> Point:
    """Quantize a model and return the artifact's sizes and test accuracy."""
    from shrink.measure.size import gzip_bytes
    from shrink.stages.quantize.config import QuantizeConfig
    from shrink.stages.quantize.run import run

    context = _context("quantize", model, data, folder)
    result = run(QuantizeConfig.model_validate(scheme), context)
    artifact = folder / "artifact.tflite"
    artifact.write_bytes(result.tflite or b"")
    right = accuracy_of(result.tflite or b"", context, context.load())
    return {
        "file_bytes": artifact.stat().st_size,
        "gzip_bytes": gzip_bytes(artifact),
        "accuracy": round(100 * right, 2),
    }


def _context(kind: str, model: Path, data: Path, folder: Path) -> Any:
    from tests.jobs import context_of

    images = {"source": "images", "path": str(data.resolve()), "cache": "memory"}
    return context_of(folder, kind=kind, inputs={"model": model}, data=images)


def compared(points: Sequence[Point]) -> list[str]:
    """Return a line for each other tool's row that prunes or clusters."""
    lines = []
    for name, size, accuracy, prunes in _PEERS:
        smaller = [point for point in points if point["gzip_bytes"] <= size]
        if prunes and smaller:
            best = max(smaller, key=lambda point: float(point["accuracy"]))
            sign = "beaten" if best["accuracy"] > accuracy else "NOT beaten"
            told = f"{best['name']}: {best['accuracy']} % at {best['gzip_bytes']:,}"
            lines.append(f"{sign}: {name}, {accuracy} % at {size:,} bytes, by {told}")
        elif prunes:
            lines.append(f"NOT beaten: {name}, {accuracy} % at {size:,}: no point is as small")
    return lines


def drawn(points: Sequence[Point]) -> str:
    """Return an SVG: compressed size across, accuracy up; rows below 74 % are left out."""
    from shrink.report import svg
    from tests.report.plain import markup

    peers = [("peer", name, size, accuracy) for name, size, accuracy, _ in _PEERS]
    ours = [("ours", p["name"], p["gzip_bytes"], p["accuracy"]) for p in points]
    shown = sorted((m for m in (*ours, *peers) if m[3] >= _LEAST_SHOWN), key=lambda m: -m[3])
    x = svg.axis([size for *_, size, _ in shown], "size under gzip -9 (bytes)", "bytes", log=False)
    y = svg.axis([one[3] for one in shown], "accuracy on all 10,000 test images (%)", log=False)
    best = [one for one in ours if all(o[2] > one[2] or o[3] <= one[3] for o in ours)]
    front = sorted((size, accuracy) for *_, size, accuracy in best)
    dots, parts = [], []
    label = float(-_ROW)  # names stand in a column on the right, in the order of accuracy
    for kind, name, size, accuracy in shown:
        at, up = x(size), y(accuracy)
        dots.append(svg.Dot(size, accuracy, kind, f"{name}: {accuracy} %, {size:,} bytes"))
        label = max(label + _ROW, (100 - up) / 100 * _HEIGHT)
        parts.append(
            f'<line class="leader" x1="{at:.2f}%" y1="{100 - up:.2f}%" x2="{_WIDTH + 8}" '
            f'y2="{label:.0f}"/><text x="{_WIDTH + 12}" y="{label + 4:.0f}">'
            f"{html.escape(name)}</text>"
        )
    plot = svg.Plot(
        "Accuracy against size",
        "shrink and other tools",
        "peers",
        x,
        y,
        {"curve": front},
        tuple(dots),
        height=_HEIGHT,
    )
    box = f'x="70" y="80" width="{_WIDTH}" height="{_HEIGHT}" overflow="visible"'
    size = f'width="{_WIDTH + 70 + _MARGIN}" height="{_HEIGHT + 140}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
        f"{_LEGEND}<svg {box}>{markup(plot)}{''.join(parts)}</svg></svg>\n"
    )


if __name__ == "__main__":
    main()
