"""A TFLite artifact as a C array for microcontroller projects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from shrink.contract.findings import Firmware

_PER_LINE = 12
_COUNTS = (
    *("sample_rate", "clip_samples", "window_samples", "stride_samples", "fft_size", "frames"),
    *("bands", "coefficients"),
)
_COUNTS_OF = {"mfcc": _COUNTS, "log_mel": _COUNTS[:-1]}
"""Numbers of an audio front end by its features; others have the first two."""


def cc_array(content: bytes, name: str, firmware: Firmware, header_name: str) -> tuple[str, str]:
    """Return the header and the source of a C array.

    Args:
        content: the .tflite file.
        name: becomes `g_<name>_model_data`; what C does not allow in a name becomes `_`.
        firmware: stated in the header as constants.
        header_name: the header's file name, which the source includes.

    Returns:
        The text of the header and of the source, after TFLite Micro's own examples: 16-byte
        aligned, with the length beside it, linked as C.
    """
    from jinja2 import Environment, FileSystemLoader  # only this form needs it

    symbol, front = f"g_{c_name(name)}_model_data", firmware.front_end
    vocabulary = list(map(str, (front or {}).get("vocabulary") or ()))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["comment"] = _comment
    header = environment.get_template("cc_array.h.jinja").render(
        name=c_name(name),
        symbol=symbol,
        prefix=c_name(name).upper(),
        firmware=firmware,
        front=front,
        counts=_COUNTS_OF.get(str((front or {}).get("features")), _COUNTS[:2]),
        vocabulary=vocabulary,
    )
    rows = [
        "    " + ", ".join(f"0x{byte:02x}" for byte in content[start : start + _PER_LINE]) + ","
        for start in range(0, len(content), _PER_LINE)
    ]
    source = (
        f'#include "{header_name}"\n\n'
        f"alignas(16) const unsigned char {symbol}[] = {{\n"
        + "\n".join(rows)
        + f"\n}};\nconst unsigned int {symbol}_len = {len(content)};\n"
        + _strings(f"g_{c_name(name)}_labels", firmware.labels)
        + _strings(f"g_{c_name(name)}_vocabulary", vocabulary)
    )
    return header, source


def _strings(symbol: str, texts: Sequence[str]) -> str:
    """Return the definition of an array of C strings; empty where there are none."""
    if not texts:
        return ""
    rows = "".join(f"    {_c_string(text)},\n" for text in texts)
    return f"\nconst char* const {symbol}[] = {{\n{rows}}};\n"


def _c_string(text: str) -> str:
    """Return a C string literal; octal escapes end after three digits, whatever follows."""
    plain = {ord("\\"), ord('"'), ord("?")}  # `??/` would be a trigraph
    return (
        '"'
        + "".join(
            chr(byte) if 32 <= byte < 127 and byte not in plain else f"\\{byte:03o}"
            for byte in text.encode("utf-8", "replace")
        )
        + '"'
    )


def _comment(text: object) -> str:
    """Return text that cannot end a `//` comment: one line, and no backslash at its end."""
    line = "".join(c if c.isprintable() else " " for c in str(text))
    return line.replace("\\", "/")


def c_name(name: str) -> str:
    """Return `name` with everything that C does not allow in an identifier made `_`."""
    cleaned = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "model"
    return f"m_{cleaned}" if cleaned[0].isdigit() else cleaned


def array_paths(folder: Path, name: str) -> tuple[Path, Path]:
    """Return where the header and the source of an array go."""
    stem = f"{c_name(name)}_model_data"
    return folder / f"{stem}.h", folder / f"{stem}.cc"
