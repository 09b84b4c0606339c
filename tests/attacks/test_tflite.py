"""Damaged and hostile .tflite files end in a ModelError, whatever they do to the runtime."""

from __future__ import annotations

import contextlib
import random
import struct
from pathlib import Path

import flatbuffers
import numpy as np
import pytest

from shrink.base.errors import ModelError
from shrink.tflite.convert import convert
from shrink.tflite.memory import read_plan, with_plan
from shrink.tflite.model import read, values
from shrink.tflite.runtime import check_artifact, guard_artifact
from shrink.tflite.sparse import with_sparse_constants
from shrink.tflite.weights import weights
from tests.attacks.test_mutants import mutate
from tests.tflite.test_memory import greedy_offsets
from tests.tflite.test_sparse import images, mostly_zeros
from tests.tflite.toys import samples, small_cnn

SAMPLES = [{"x": image[None]} for image in images(8)]


@pytest.fixture(scope="module")
def content() -> bytes:
    return convert(small_cnn(), "float32").content


def survivors(content: bytes, path: Path, count: int, seed: int) -> list[bytes]:
    """Check mutants' structure; return those that pass it. Anything but a ModelError raises."""
    chance, passed = random.Random(seed), []
    for _ in range(count):
        mutant = mutate(content, chance)
        path.write_bytes(mutant)
        try:
            check_artifact(path)
        except ModelError:
            continue
        passed.append(mutant)
    return passed


def tried(mutants: list[bytes], path: Path) -> dict[str, int]:
    """Run every mutant in a child; return how often each way of ending was seen."""
    ends: dict[str, int] = {}
    for mutant in mutants:
        path.write_bytes(mutant)
        try:
            guard_artifact(path, timeout_s=20)
            end = "ran"
        except ModelError as error:
            end = "refused: " + error.message.partition("zeros ")[2][:16]
        ends[end] = ends.get(end, 0) + 1
    return ends


def test_check_artifact_raises_only_model_errors_for_mutants(
    content: bytes, tmp_path: Path
) -> None:
    passed = survivors(content, tmp_path / "m.tflite", 400, seed=1)
    assert 10 < len(passed) < 380  # some 39; names and so the bytes depend on tests before


def test_read_plan_raises_only_model_errors_for_mutants() -> None:
    """The plan's own numbers and the graph's, each time a few of them."""
    content = convert(small_cnn(), "static_int8", samples(small_cnn(), 4)).content
    planned, chance = with_plan(content, greedy_offsets(content)), random.Random(4)
    stored = planned.index(np.array([1, 0, len(read(content)[0].tensors)], "<i4").tobytes())
    read_whole = 0
    for number in range(400):
        mutant = bytearray(mutate(planned, chance) if number % 2 else planned)
        for _ in range(number % 4):
            place = stored + 4 * chance.randrange(20)
            mutant[place : place + 4] = chance.choice([0, 16, 7, -2, 2**31 - 1]).to_bytes(
                4, "little", signed=True
            )
        with contextlib.suppress(ModelError):
            read_whole += read_plan(bytes(mutant)) is not None
    assert 10 < read_whole < 390


def test_weights_of_sparse_mutants_raise_only_model_errors(tmp_path: Path) -> None:
    chance, read_whole = random.Random(3), 0
    content = with_sparse_constants(convert(mostly_zeros(0.9), "static_int8", SAMPLES).content)
    for _ in range(200):
        mutant = mutate(content, chance)
        with contextlib.suppress(ModelError):
            read_whole += sum(values(tensor) is not None for tensor in weights(mutant))
    assert read_whole > 100


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_check_artifact_raises_only_model_errors_for_many_mutants(
    content: bytes, tmp_path: Path
) -> None:
    """Those that pass are run, a hundred of them: the process that does it may die, no other."""
    passed = survivors(content, tmp_path / "m.tflite", 10_000, seed=2)
    ends = tried(random.Random(0).sample(passed, 100), tmp_path / "m.tflite")
    assert ends["ran"] > 10


@pytest.mark.parametrize("shared", ["code", "subgraph"])
def test_check_artifact_refuses_names_that_many_tables_share(shared: str, tmp_path: Path) -> None:
    """100 MB of names once they are copied, in a file of 100 to 200 KB."""
    builder = flatbuffers.Builder(0)
    name = builder.CreateString("x" * 50_000)
    tables = []
    for _ in range(2000):
        builder.StartObject(10)
        builder.PrependUOffsetTRelativeSlot(1 if shared == "code" else 4, name, 0)
        tables.append(builder.EndObject())
    builder.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        builder.PrependUOffsetTRelative(table)
    vector = builder.EndVector()
    builder.StartObject(8)
    builder.PrependUOffsetTRelativeSlot(1 if shared == "code" else 2, vector, 0)
    builder.Finish(builder.EndObject(), b"TFL3")
    path = tmp_path / "shared.tflite"
    path.write_bytes(bytes(builder.Output()))
    assert path.stat().st_size < 200_000
    with pytest.raises(ModelError, match="longer than the file"):
        check_artifact(path)


def test_guard_artifact_reads_a_file_in_bounded_memory(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    # The child runs this instead of the structure's check: 40 GB of address space are too much.
    module = tmp_path / "greedy.py"
    module.write_text(
        "import numpy as np\n"
        "from shrink.tflite import runtime\n"
        "runtime.check_artifact = lambda path: np.empty(40 << 30, np.uint8).size\n"
        "runtime.main()\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")
    with pytest.raises(ModelError, match="more memory than its bytes"):
        guard_artifact(path, child="greedy", in_litert=False)


def test_guard_artifact_is_silent_about_a_good_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(content)
    guard_artifact(tmp_path / "m.tflite")


def test_check_artifact_refuses_what_needs_more_memory_than_there_is(
    content: bytes, tmp_path: Path
) -> None:
    """The input of (1, 8, 8, 1) becomes one of (1, 8, 8, 2**30) in all tensors of that shape."""
    shape = struct.pack("<4i", 1, 8, 8, 1)
    assert shape in content
    path = tmp_path / "m.tflite"
    path.write_bytes(content.replace(shape, struct.pack("<4i", 1, 8, 8, 1 << 30)))
    with pytest.raises(ModelError, match="this machine has"):
        check_artifact(path)


def test_check_artifact_refuses_a_constant_of_another_size(content: bytes, tmp_path: Path) -> None:
    kernel = struct.pack("<4i", 4, 3, 3, 1)
    assert kernel in content
    path = tmp_path / "m.tflite"
    path.write_bytes(content.replace(kernel, struct.pack("<4i", 400, 3, 3, 1)))
    with pytest.raises(ModelError, match="bytes, "):
        guard_artifact(path)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "died by SIGSEGV"),
        ("import os; os.abort()", "died by SIGABRT"),
        ("import time; time.sleep(60)", "took longer than 1 s"),
        ("bytes(1 << 50)", "more memory than its bytes and tensors"),
    ],
)
def test_guard_artifact_survives_what_a_kernel_may_do(
    act: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of its own stands for the child; in place of LiteRT it does the act."""
    (tmp_path / "acting.py").write_text(
        "from shrink.tflite import runtime as child\n\n"
        f"def act(path, as_it_is):\n    {act}\n\n"
        "child.check_artifact = lambda path: 0\nchild._run_on_zeros = act\n"
        "child.main()\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")
    (tmp_path / "m.tflite").touch()
    with pytest.raises(ModelError, match=words):
        guard_artifact(tmp_path / "m.tflite", 1 if "sleep" in act else 20, child="acting")


def test_guard_artifact_refuses_a_quantized_file_that_is_to_be_quantized(tmp_path: Path) -> None:
    path = tmp_path / "mine.tflite"
    examples = samples(small_cnn(), 4)
    path.write_bytes(convert(small_cnn(), "static_int8", examples).content)
    guard_artifact(path)
    with pytest.raises(ModelError, match="quantized already") as caught:
        guard_artifact(path, to_be_quantized=True)
    assert caught.value.subject == str(path)
