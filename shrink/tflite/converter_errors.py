"""Turn what the TFLite converter raises into one sentence that names operator and layer."""

from __future__ import annotations

import re

from shrink.base.errors import ConversionError, StageError

_HINT = "try scheme float32 first: it tells whether the model or the quantization is refused"
_FLOAT_HINT = (
    "no scheme can convert this model: replace the layer, or of a SavedModel give the Keras model "
    "that it was exported from"
)
_UNSUPPORTED = re.compile(r"^(?:Custom|Flex|TF Select) ops: (.+)$", re.MULTILINE)
_NOT_16X8 = re.compile(r"16x8-bit not yet supported for op: '(\w+)'")
_LOCATION = re.compile(r'"([^"@]+)@__inference')


def explain(error: Exception, precision: str) -> StageError:
    """Return a `StageError` that says which operator of which layer was refused, and what to do.

    Args:
        error: what `TFLiteConverter.convert` raised.
        precision: what the model was being converted to, for the message.
    """
    text = str(error)
    if found := _UNSUPPORTED.search(text):
        return StageError(
            f"TFLite has no operator for {found.group(1).strip()}",
            subject=_layer(text),
            hint="replace this layer's operation by one that TFLite supports",
        )
    if found := _NOT_16X8.search(text):
        return StageError(
            f"the operator {found.group(1)} has no version with 16-bit activations",
            hint="use scheme static_wi8_ai8 or dynamic_wi8_afp32",
        )
    return ConversionError(
        f"the TFLite converter failed on {precision}: {_reason(text) or brief(error)}",
        subject=_layer(text),
        hint=_FLOAT_HINT if precision == "float32" else _HINT,
    )


def _reason(text: str) -> str:
    """Return why, without the nested locations that MLIR puts before it; empty if none is told."""
    found = [line for line in text.splitlines() if "error: " in line and "loc(" in line]
    return found[0].rpartition("): ")[2].removeprefix("error: ").strip()[:300] if found else ""


def _layer(text: str) -> str | None:
    """Return the layer of the first location, "model/layer/Operator" or deeper."""
    found = _LOCATION.search(text)
    parts = found.group(1).split("/") if found else []
    return "/".join(parts[1:-1]) or None


def brief(error: Exception) -> str:
    """Return the first line of an error's text, or its type where it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
