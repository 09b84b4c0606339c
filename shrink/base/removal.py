"""Removed keys, values, flags and commands, with the replacement of each."""

from __future__ import annotations

REMOVED: dict[str, str] = {
    "shrink docs": "read the pages in docs/ or build the site with `mkdocs build`",
    "shrink data pack": "shrink reads the data where it is; data.cache keeps decoded examples",
    "matrix.exclude": "list the values of each key, and use several recipes or --set for the rest",
    "matrix.include": "list the values of each key, and use several recipes or --set for the rest",
    "compact.target=edgetpu": "compile the int8 file with Google's edgetpu_compiler, which prints "
    "where each operator runs (edgetpu_compiler -s FILE.tflite)",
    "compact.target=litert": "leave it out: only TFLite Micro has an arena that can be planned",
    "prune.training_peak_bytes": "set training.memory_limit for the memory of training, and "
    "prune.macs, parameters, file_bytes or arena_bytes for the size of the model",
    "prune.sensitivity_metric": "leave it out: sensitivity is measured by the validation loss",
    **dict.fromkeys(
        [f"prune.importance={name}" for name in ("apoz", "mean_activation")],
        "write l2 (norms), taylor (gradients) or least_squares (activations)",
    ),
    "--training-peak-bytes": "set --memory-limit for the memory of training, and --macs, "
    "--parameters, --file-bytes or --arena-bytes for the size of the model",
    "shrink data unpack": "shrink reads the data where it is",
    "gates.stage_host_peak_predicted_bytes": "use stage_host_peak_bytes or "
    "training.host_memory_limit",
    **dict.fromkeys(
        ("quantize.table_bits", "--table-bits"),
        "put a stage cluster before quantize, such as cluster: {clusters: 16}",
    ),
    **dict.fromkeys(
        ("distill.output_weights", "--output-weights"),
        "set task.loss_weights, which weighs the losses on labels and on the teacher alike",
    ),
    "distill.cache_dtype=topk": "write cache_dtype: float16",
    "distill.top_k": "write cache_dtype: float16 for a smaller cache",
    "--top-k": "write --cache-dtype float16 for a smaller cache",
    "search.rungs": "leave it out: every trial is trained with all its epochs",
    "search.warm_starts": "leave it out: every trial is trained from the baseline",
    **dict.fromkeys(
        ("search.sampler", "--sampler"),
        "leave it out: the next trial is the one with the highest expected improvement per second",
    ),
    "data.source=digit_scenes": "write source: python with the function masks of "
    "data/digit_scenes.py, as the recipe digits-segment does",
    "data.source=digit_boxes": "write source: python with the function boxes of "
    "data/digit_scenes.py, as the recipe digits-detect does",
    "data.source=tones": "write source: python with data/tones.py, as the recipe tones-keyword "
    "does",
    "data.source=machine": "write source: python with data/machine.py, as the recipe "
    "machine-anomaly does",
    "data.source=season": "write source: series with the file data/season.csv that is beside the "
    "bundled recipes; `shrink recipes --json` prints their folder",
    "data.source=sentences": "write source: text with the file data/sentences.csv that is beside "
    "the bundled recipes; `shrink recipes --json` prints their folder",
}
"""The replacement by name: `SECTION.KEY`, `SECTION.KEY=VALUE`, `--flag` or `shrink COMMAND`."""


def replacement(*names: str) -> str | None:
    """Return the replacement of the first of these names that was removed, or None."""
    return next((REMOVED[name] for name in names if name in REMOVED), None)
