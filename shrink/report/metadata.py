"""What an application must know of an artifact to use it: labels, normalisation, types."""

from __future__ import annotations

from shrink.contract.codec import to_plain
from shrink.contract.details import Interface
from shrink.contract.report import Report, Stage

_VERSION = 1


def metadata(report: Report, report_sha256: str) -> dict[str, object]:
    """Return what `artifacts/metadata.json` says, from the report alone.

    Args:
        report: the report.
        report_sha256: of the `report.json` that holds it.

    Returns:
        `recipe`; `report_sha256`; and per finished .tflite artifact in `artifacts`: `file`,
        `sha256`, `inputs` and `outputs` (name, shape, dtype, and scale and zero point of
        `real = scale * (stored - zero_point)`), `labels` by index, `normalize` (done to examples
        before the model sees them, or null), `metrics` and the `examples` they are of.
    """
    return {
        "schema_version": _VERSION,
        "recipe": to_plain(report.recipe),
        "report_sha256": report_sha256,
        "artifacts": [_artifact(stage) for stage in report.stages if _is_tflite(stage)],
    }


def _is_tflite(stage: Stage) -> bool:
    return (stage.artifact or "").endswith(".tflite")


def _artifact(stage: Stage) -> dict[str, object]:
    interface = to_plain(stage.told.interface or Interface())
    return {
        "file": str(stage.artifact).rpartition("/")[2],
        "sha256": stage.sha256,
        **{key: interface.get(key) for key in ("inputs", "outputs", "labels", "normalize")},
        "metrics": stage.metrics,
        "examples": stage.examples,
    }
