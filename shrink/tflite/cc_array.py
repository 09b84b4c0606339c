"""A TFLite artifact as a C array, the form that microcontroller projects compile in."""

from __future__ import annotations

import re
from pathlib import Path

_PER_LINE = 12


def cc_array(content: bytes, name: str) -> tuple[str, str]:
    """Return the header and the source of a C array.

    Args:
        content: the .tflite file.
        name: becomes `g_<name>_model_data`; what C does not allow in a name becomes `_`.

    Returns:
        The text of `<name>_model_data.h` and of `<name>_model_data.cc`, after TFLite Micro's own
        examples: 16-byte aligned, with the length beside it.
    """
    symbol = f"g_{c_name(name)}_model_data"
    guard = f"{symbol.upper()}_H_"
    header = (
        f"#ifndef {guard}\n#define {guard}\n\n"
        f"extern const unsigned char {symbol}[];\n"
        f"extern const unsigned int {symbol}_len;\n\n"
        f"#endif  // {guard}\n"
    )
    rows = [
        "    " + ", ".join(f"0x{byte:02x}" for byte in content[start : start + _PER_LINE]) + ","
        for start in range(0, len(content), _PER_LINE)
    ]
    source = (
        f'#include "{c_name(name)}_model_data.h"\n\n'
        f"alignas(16) const unsigned char {symbol}[] = {{\n"
        + "\n".join(rows)
        + f"\n}};\nconst unsigned int {symbol}_len = {len(content)};\n"
    )
    return header, source


def c_name(name: str) -> str:
    """Return `name` with everything that C does not allow in an identifier made `_`."""
    cleaned = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "model"
    return f"m_{cleaned}" if cleaned[0].isdigit() else cleaned


def array_paths(folder: Path, name: str) -> tuple[Path, Path]:
    """Return where the header and the source of an array go."""
    stem = f"{c_name(name)}_model_data"
    return folder / f"{stem}.h", folder / f"{stem}.cc"
