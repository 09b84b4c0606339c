"""C arrays: two models in one program, constants that compile, labels that say what they said."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from shrink.contract.details import TensorType
from shrink.contract.findings import Firmware
from shrink.tflite.cc_array import cc_array
from shrink.tools.artifact import resolver_method

LABELS = ("plain", 'with "quotes" \\ and ??/', "Straße\n7", "8")


def tensor(
    name: str, shape: tuple[int, ...], dtype: str, scale: float | None, zero_point: int | None
) -> TensorType:
    return TensorType(name=name, shape=shape, dtype=dtype, scale=scale, zero_point=zero_point)


FIRMWARE = Firmware(
    operators=("AddConv2D", "AddSoftmax"),
    arena_bytes=1360,
    arena_note="measured",
    inputs=(tensor("x \\", (1, 4), "int8", 0.5, -3),),
    outputs=(
        tensor("a", (1, 2), "int8", 1e-05, 7),
        tensor("b", (1, 1), "float32", None, None),
    ),
    labels=LABELS,
)


@pytest.mark.parametrize(
    ("operator", "method"),
    [  # as tensorflow/lite/micro/micro_mutable_op_resolver.h spells them
        ("CONV_2D", "AddConv2D"),
        ("SLICE", "AddSlice"),
        ("TFLM_DECODE", "AddDecode"),
        ("TFLite_Detection_PostProcess", "AddDetectionPostprocess"),
        ("ethos-u", "AddEthosU"),
        ("SignalWindow", "AddWindow"),
        ("SignalFftAutoScale", "AddFftAutoScale"),
        ("CIRCULAR_BUFFER", "AddCircularBuffer"),
        ("PosenetDecoderOp", 'AddCustom /* "PosenetDecoderOp", its TFLMRegistration */'),
        ("DEPTHWISE_CONV_2D", "AddDepthwiseConv2D"),
        ("FULLY_CONNECTED", "AddFullyConnected"),
        ("L2_POOL_2D", "AddL2Pool2D"),
        ("PADV2", "AddPadV2"),
        ("SPACE_TO_BATCH_ND", "AddSpaceToBatchNd"),
        ("RELU6", "AddRelu6"),
        ("CUMSUM", "AddCumSum"),
        ("SPLIT_V", "AddSplitV"),
    ],
)
def test_resolver_method_is_spelled_as_tflite_micro_has_it(operator: str, method: str) -> None:
    assert resolver_method(operator) == method


def test_cc_array_says_what_a_32_bit_target_takes() -> None:
    known = replace(FIRMWARE, arena_32_bytes=1200)
    header, _ = cc_array(b"", "one", known, "one.h")
    assert "// On a Cortex-M4 with CMSIS-NN about 1200: an estimate.\n" in header


FRONT_END = {
    "features": "mfcc", "sample_rate": 8_000, "clip_samples": 8_000, "window_samples": 320,
    "stride_samples": 160, "fft_size": 512, "frames": 49, "bands": 24, "coefficients": 10,
    "low_hz": 100.0, "high_hz": 4_000.0, "log_offset": 1e-06,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "there", "absent"),
    [
        ("mfcc", "ONE_AUDIO_COEFFICIENTS 10\n", "ONE_AUDIO_CHANNEL"),
        ("log_mel", "ONE_AUDIO_LOG_OFFSET 1e-06f\n", "ONE_AUDIO_COEFFICIENTS"),
        ("waveform", "ONE_AUDIO_CLIP_SAMPLES 8000\n", "ONE_AUDIO_BANDS"),
    ],
)
def test_cc_array_states_the_audio_front_end(kind: str, there: str, absent: str) -> None:
    known = replace(FIRMWARE, front_end={**FRONT_END, "features": kind})
    header, _ = cc_array(b"", "one", known, "one.h")
    assert f"#define {there}" in header
    assert absent not in header
    assert f"// Audio front end: {kind} of samples" in header
    assert "AUDIO" not in cc_array(b"", "one", FIRMWARE, "one.h")[0]


TOKENS = {
    "split": "words", "lower": True, "length": 16, "padding": "[PAD]", "unknown": "[UNK]",
    "padding_id": 0, "unknown_id": 1, "vocabulary": ["[PAD]", "[UNK]", 'a"b\\'],
}  # fmt: skip


def test_cc_array_holds_the_vocabulary_of_a_model_of_texts() -> None:
    header, source = cc_array(b"", "one", replace(FIRMWARE, front_end=TOKENS), "one.h")
    for line in ("LENGTH 16", "PADDING_ID 0", "UNKNOWN_ID 1"):
        assert f"#define ONE_TOKENS_{line}\n" in header
    assert "#define ONE_TOKENS 3\n" in header
    assert "extern const char* const g_one_vocabulary[];\n" in header
    assert 'g_one_vocabulary[] = {\n    "[PAD]",\n    "[UNK]",\n    "a\\042b\\134",\n};\n' in source
    assert "AUDIO" not in header
    assert "vocabulary" not in cc_array(b"", "one", FIRMWARE, "one.h")[1]


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler on this machine")
def test_cc_arrays_of_two_models_link_and_hold_what_they_say(tmp_path: Path) -> None:
    for name, content in (("one", b"\x01\x02\x03"), ("2-two", b"\xff" * 20)):
        header, source = cc_array(content, name, FIRMWARE, f"{name}.h")
        (tmp_path / f"{name}.h").write_text(header)
        (tmp_path / f"{name}.cc").write_text(source)
    main = tmp_path / "main.cc"
    main.write_text(
        '#include <cstdio>\n#include "one.h"\n#include "2-two.h"\n'
        'static_assert(ONE_ARENA_BYTES == 1360 && ONE_OPERATORS == 2 && ONE_CLASSES == 4, "");\n'
        "static_assert(ONE_INPUT_SCALE == 0.5f && ONE_INPUT_ZERO_POINT == -3 &&\n"
        '              ONE_OUTPUT0_SCALE == 1e-05f && ONE_OUTPUT0_ZERO_POINT == 7, "");\n'
        "int main() {\n"
        "  std::fwrite(g_one_model_data, 1, g_one_model_data_len, stdout);\n"
        "  std::fwrite(g_m_2_two_model_data, 1, g_m_2_two_model_data_len, stdout);\n"
        "  for (int i = 0; i < ONE_CLASSES; ++i) std::fputs(g_one_labels[i], stdout);\n}\n"
    )
    program = tmp_path / "program"
    sources = [main, tmp_path / "one.cc", tmp_path / "2-two.cc"]
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["g++", *flags, *sources, "-o", program], check=True)
    printed = subprocess.run([program], capture_output=True, check=True).stdout
    assert printed == b"\x01\x02\x03" + b"\xff" * 20 + "".join(LABELS).encode()


STUBS = """
#pragma once
#include <cstddef>
#include <cstdint>
enum TfLiteStatus { kTfLiteOk, kTfLiteError };
union Values { int8_t* int8; float* f; };
struct TfLiteTensor { Values data; };
namespace tflite {
struct Model { const void* bytes; };
inline const Model* GetModel(const void* bytes) {
  static Model model;
  model.bytes = bytes;
  return &model;
}
template <unsigned int N> struct MicroMutableOpResolver {
  unsigned int added = 0;
  TfLiteStatus Add() { return ++added <= N ? kTfLiteOk : kTfLiteError; }
  TfLiteStatus AddConv2D() { return Add(); }
  TfLiteStatus AddFullyConnected() { return Add(); }
  TfLiteStatus AddMaxPool2D() { return Add(); }
  TfLiteStatus AddReduceMax() { return Add(); }
};
struct MicroInterpreter {
  int8_t in[64] = {}, out[10] = {};
  TfLiteTensor input_tensor{{in}}, output_tensor{{out}};
  template <class R> MicroInterpreter(const Model*, const R&, uint8_t*, std::size_t) {}
  TfLiteStatus AllocateTensors() { return kTfLiteOk; }
  TfLiteTensor* input(int) { return &input_tensor; }
  TfLiteTensor* output(int) { return &output_tensor; }
  TfLiteStatus Invoke() { out[7] = in[0] == -128 ? 1 : -1; return kTfLiteOk; }
};
}  // namespace tflite
"""
"""TFLite Micro as far as the program of docs/firmware.md calls it; a zero input is a seven."""


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler on this machine")
def test_the_program_of_the_page_about_firmware_runs_around_an_exported_header(
    tmp_path: Path,
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "firmware.md").read_text("utf-8")
    program = page.partition("```cpp\n")[2].partition("```")[0]
    digits = Firmware(
        operators=("AddConv2D", "AddFullyConnected", "AddMaxPool2D", "AddReduceMax"),
        arena_bytes=6704,
        arena_note="",
        inputs=(tensor("picture", (1, 8, 8, 1), "int8", 0.062745101749897, -128),),
        outputs=(tensor("output_0", (1, 10), "int8", 0.08, -30),),
        labels=tuple("0123456789"),
    )
    header, source = cc_array(b"TFL3", "digits", digits, "digits_model_data.h")
    shown = page.partition("```c\n")[2].partition("```")[0].splitlines()
    assert [line for line in shown if line not in header.splitlines()] == []
    (tmp_path / "digits_model_data.h").write_text(header)
    (tmp_path / "digits_model_data.cc").write_text(source)
    (tmp_path / "main.cc").write_text(program)
    for name in (
        "micro/micro_interpreter",
        "micro/micro_mutable_op_resolver",
        "schema/schema_generated",
    ):
        stub = tmp_path / "tensorflow" / "lite" / f"{name}.h"
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text(f'#include "{tmp_path}/stubs.h"\n')
    (tmp_path / "stubs.h").write_text(STUBS)
    built = tmp_path / "program"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}"]
    sources = [tmp_path / "main.cc", tmp_path / "digits_model_data.cc"]
    subprocess.run(["g++", *flags, *sources, "-o", built], check=True)
    assert subprocess.run([built], capture_output=True, check=True).stdout == b"7\n"
