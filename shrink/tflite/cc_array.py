"""A TFLite artifact as a C array for microcontroller projects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from shrink.base.foreign import Json
from shrink.contract.details import TensorType
from shrink.contract.findings import Firmware

_PER_LINE = 12


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
    symbol = f"g_{c_name(name)}_model_data"
    guard = f"{symbol.upper()}_H_"
    constants = "\n".join(_constants(c_name(name).upper(), firmware))
    labels = _strings(f"g_{c_name(name)}_labels", firmware.labels)
    vocabulary = _strings(f"g_{c_name(name)}_vocabulary", _vocabulary(firmware.front_end))
    header = (
        f"#ifndef {guard}\n#define {guard}\n\n"
        f"{constants}\n\n"
        '#ifdef __cplusplus\nextern "C" {\n#endif\n\n'
        f"extern const unsigned char {symbol}[];\n"
        f"extern const unsigned int {symbol}_len;\n"
        + (f"extern const char* const g_{c_name(name)}_labels[];\n" if labels else "")
        + (f"extern const char* const g_{c_name(name)}_vocabulary[];\n" if vocabulary else "")
        + '\n#ifdef __cplusplus\n}  // extern "C"\n#endif\n\n'
        f"#endif  // {guard}\n"
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
        + labels
        + vocabulary
    )
    return header, source


def _constants(prefix: str, firmware: Firmware) -> Iterator[str]:
    yield "// Operators, for tflite::MicroMutableOpResolver:"
    yield from (f"//   resolver.{method}();" for method in firmware.operators)
    yield f"#define {prefix}_OPERATORS {len(firmware.operators)}"
    if firmware.resource_variables:
        yield ""
        yield "// Resource variables keep the model's state; the interpreter needs room for them:"
        yield "//   auto* allocator = tflite::MicroAllocator::Create(arena, sizeof(arena));"
        yield "//   auto* variables = tflite::MicroResourceVariables::Create("
        yield f"//       allocator, {prefix}_RESOURCE_VARIABLES);"
        yield "//   tflite::MicroInterpreter interpreter(model, resolver, allocator, variables);"
        yield f"#define {prefix}_RESOURCE_VARIABLES {firmware.resource_variables}"
    yield ""
    if firmware.arena_bytes is None:
        yield f"// No arena size: {_comment(firmware.arena_note)}"
    else:
        yield "// Tensor arena in bytes, of TFLite Micro on a 64-bit host: 32-bit targets need"
        yield "// a little less, optimised kernels may need scratch memory beside it."
        if firmware.arena_32_bytes is not None:
            yield f"// On a Cortex-M4 with CMSIS-NN about {firmware.arena_32_bytes}: an estimate."
        yield f"#define {prefix}_ARENA_BYTES {firmware.arena_bytes}"
    for kind, tensors in (("INPUT", firmware.inputs), ("OUTPUT", firmware.outputs)):
        for index, tensor in enumerate(tensors):
            own = kind if len(tensors) == 1 else f"{kind}{index}"
            yield from _tensor_lines(f"{prefix}_{own}", tensor)
    if _vocabulary(firmware.front_end):
        yield from _token_lines(prefix, firmware.front_end or {})
    elif firmware.front_end is not None:
        yield from _front_end_lines(prefix, firmware.front_end)
    if firmware.labels:
        yield ""
        yield f"#define {prefix}_CLASSES {len(firmware.labels)}"


def _tensor_lines(prefix: str, tensor: TensorType) -> Iterator[str]:
    shape = " x ".join(map(str, tensor.shape))
    yield ""
    yield f"// {_comment(tensor.name)}: {tensor.dtype}, {shape}"
    if tensor.scale is not None:
        yield "// real = scale * (stored - zero point)"
        yield f"#define {prefix}_SCALE {tensor.scale!r}f"
        yield f"#define {prefix}_ZERO_POINT ({tensor.zero_point})"


_COUNTS = (
    *("sample_rate", "clip_samples", "window_samples", "stride_samples", "fft_size", "frames"),
    *("bands", "coefficients"),
)
_FLOATS = ("low_hz", "high_hz", "log_offset")


def _front_end_lines(prefix: str, front_end: Mapping[str, Json]) -> Iterator[str]:
    """Yield what makes inputs of samples, by shrink's docs/audio.md."""
    kind = str(front_end.get("features"))
    yield ""
    yield f"// Audio front end: {_comment(kind)} of samples from -1 to 1 (docs/audio.md of shrink)."
    skipped = {"log_mel": ("coefficients",), "mfcc": ()}.get(kind, _COUNTS[2:])
    for name in _COUNTS:
        if name not in skipped and front_end.get(name) is not None:
            yield f"#define {prefix}_AUDIO_{name.upper()} {front_end[name]}"
    if kind != "waveform":
        for name in _FLOATS:
            if front_end.get(name) is not None:
                yield f"#define {prefix}_AUDIO_{name.upper()} {float(front_end[name])!r}f"


def _vocabulary(front_end: Mapping[str, Json] | None) -> list[str]:
    """Return the tokens by id, of a model of texts; of any other none."""
    return list(map(str, (front_end or {}).get("vocabulary") or ()))


def _token_lines(prefix: str, front_end: Mapping[str, Json]) -> Iterator[str]:
    """Yield what makes ids of a text, by shrink's docs/text.md."""
    cases = "of small letters" if front_end.get("lower") else "as it is"
    yield ""
    yield f"// Token ids of a text {cases}, split into {_comment(str(front_end.get('split')))}:"
    yield "// the place of each token in the vocabulary (docs/text.md of shrink)."
    yield f"#define {prefix}_TOKENS_LENGTH {front_end.get('length')}"
    yield f"#define {prefix}_TOKENS_PADDING_ID {front_end.get('padding_id')}"
    yield f"#define {prefix}_TOKENS_UNKNOWN_ID {front_end.get('unknown_id')}"
    yield f"#define {prefix}_TOKENS {len(_vocabulary(front_end))}"


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


def _comment(text: str) -> str:
    """Return text that cannot end a `//` comment: one line, and no backslash at its end."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return line.replace("\\", "/")


def c_name(name: str) -> str:
    """Return `name` with everything that C does not allow in an identifier made `_`."""
    cleaned = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "model"
    return f"m_{cleaned}" if cleaned[0].isdigit() else cleaned


def array_paths(folder: Path, name: str) -> tuple[Path, Path]:
    """Return where the header and the source of an array go."""
    stem = f"{c_name(name)}_model_data"
    return folder / f"{stem}.h", folder / f"{stem}.cc"
