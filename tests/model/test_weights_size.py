"""The weights of a model file are counted without its optimizer's slots."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.model import bundle, weights_size
from shrink.model.bundle import variable_sizes
from shrink.model.weights_size import weights_bytes

KERNELS = 4 * (64 * 512 + 512 + 512 * 256 + 256)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> keras.Model:
    layers = [keras.layers.Dense(512), keras.layers.Dense(256)]
    model = keras.Sequential([keras.layers.Input((64,)), *layers])
    model.compile("adam", "mse")
    model.fit(np.zeros((4, 64), np.float32), np.zeros((4, 256), np.float32), verbose=0)
    return model


@pytest.fixture(autouse=True)
def _nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_size, "_SMALL_BYTES", 0)


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5")
@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_the_slots_of_an_optimizer_are_no_weights(
    ending: str, trained: keras.Model, tmp_path: Path
) -> None:
    path = tmp_path / f"m.{ending}"
    trained.save(path)
    assert path.stat().st_size > 3 * KERNELS
    # The count of steps may stand beside the weights.
    assert KERNELS <= weights_bytes(path) <= KERNELS + 64


def deflated(path: Path, packed: Path) -> Path:
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in source.namelist():
            new.writestr(name, source.read(name))
    return packed


def test_a_packed_archive_counts_as_one_that_is_not(trained: keras.Model, tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    trained.save(path)
    packed = deflated(path, tmp_path / "packed.keras")
    assert weights_bytes(packed) == weights_bytes(path) <= KERNELS + 64


def test_an_archive_that_would_unpack_to_too_much_counts_whole(
    trained: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.keras"
    trained.save(path)
    packed = deflated(path, tmp_path / "packed.keras")
    monkeypatch.setattr(weights_size, "_MOST_UNPACKED_BYTES", KERNELS)
    assert weights_bytes(packed) == packed.stat().st_size


OPTIMIZERS = {
    "new": keras.optimizers.Adam,
    "legacy": keras.optimizers.legacy.Adam,
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_saved_model_counts_its_variables_and_its_graph(kind: str, tmp_path: Path) -> None:
    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(512)])
    model.compile(OPTIMIZERS[kind](), "mse")
    model.fit(np.zeros((4, 64), np.float32), np.zeros((4, 512), np.float32), verbose=0)
    folder = tmp_path / "saved"
    model.save(folder, save_format="tf")
    graph = (folder / "saved_model.pb").stat().st_size
    kernels = 4 * (64 * 512 + 512)
    whole = sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
    assert whole - graph > 3 * kernels
    # The loss and its count stand beside the weights.
    assert kernels + graph <= weights_bytes(folder) <= kernels + graph + 64


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    prefix = str(tmp_path_factory.mktemp("checkpoint") / "c")
    # So many that there is more than one block, and that keys share what they begin with.
    values = {f"layer_{number:04}": tf.zeros((number % 7 + 1,)) for number in range(2500)}
    written = tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=list(values.values()),
    )
    assert written is None
    return Path(f"{prefix}.index").read_bytes()


def test_variable_sizes_are_those_that_were_written(index: bytes) -> None:
    found = dict(variable_sizes(index))
    assert found == {f"layer_{number:04}": 4 * (number % 7 + 1) for number in range(2500)}


def test_a_damaged_index_is_read_or_refused(index: bytes) -> None:
    generator = random.Random(0)
    refused = 0
    for _ in range(60):
        damaged = bytearray(index)
        for _ in range(generator.randint(1, 4)):
            damaged[-generator.randint(1, 1500)] = generator.randrange(256)
        cut = bytes(damaged[generator.choice((0, 0, generator.randrange(2000))) :])
        try:
            list(variable_sizes(cut))
        except ValueError:
            refused += 1
    assert refused > 20


def varint_of(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return found + bytes((number,))


def table_of(blocks: bytes, places: Sequence[tuple[int, int]]) -> bytes:
    """Return an index whose outer block names places of inner ones."""
    values = [varint_of(begin) + varint_of(length) for begin, length in places]
    outer = b"".join(bytes((0, 0, len(value))) + value for value in values) + bytes(4)
    where = bytes(2) + varint_of(len(blocks)) + varint_of(len(outer))
    footer = where.ljust(40, b"\0") + (0xDB4775248B80FB57).to_bytes(8, "little")
    return blocks + outer + b"\0" + footer


def test_an_index_of_more_entries_than_any_model_has_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "_MOST_KEYS", 1000)
    # Each entry is of three bytes: nothing shared, no key of its own, no value.
    inner = bytes(3) * 600 + bytes(4)
    second = (len(inner) + 1, len(inner))
    content = table_of((inner + b"\0") * 2, [(0, len(inner)), second])
    with pytest.raises(ValueError, match="more or longer variables than any model has"):
        list(variable_sizes(content))


def test_no_block_of_an_index_is_read_twice() -> None:
    inner = bytes(3) * 600 + bytes(4)
    with pytest.raises(ValueError, match="blocks that are not in their order"):
        list(variable_sizes(table_of(inner + b"\0", [(0, len(inner))] * 2)))
    with pytest.raises(ValueError, match="blocks that are not in their order"):
        list(variable_sizes(table_of(inner + b"\0", [(3, len(inner) - 3), (0, len(inner))])))


def test_an_entry_of_an_index_is_no_longer_than_any_is() -> None:
    value = bytes(70_000)
    inner = bytes(2) + varint_of(len(value)) + value + bytes(4)
    with pytest.raises(ValueError, match="more or longer variables"):
        list(variable_sizes(table_of(inner + b"\0", [(0, len(inner))])))


def test_a_saved_model_without_a_readable_index_counts_whole(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(bytes(100))
    (folder / "variables" / "variables.data-00000-of-00001").write_bytes(bytes(1000))
    (folder / "variables" / "variables.index").write_bytes(bytes(60))
    assert weights_bytes(folder) == 1160


def test_a_saved_model_whose_index_says_more_than_there_is_counts_whole(
    index: bytes, tmp_path: Path
) -> None:
    folder = tmp_path / "saved"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(bytes(100))
    (folder / "variables" / "variables.data-00000-of-00001").write_bytes(bytes(1000))
    (folder / "variables" / "variables.index").write_bytes(index)
    assert weights_bytes(folder) == 1100 + len(index)


def test_what_cannot_be_read_counts_whole(trained: keras.Model, tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    trained.save(path)
    packed = deflated(path, tmp_path / "packed.keras")
    damaged_pack = bytearray(packed.read_bytes())
    damaged_pack[len(damaged_pack) // 2] ^= 255
    packed.write_bytes(damaged_pack)
    assert weights_bytes(packed) == packed.stat().st_size
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert weights_bytes(path) == path.stat().st_size
    damaged = tmp_path / "m.h5"
    damaged.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    assert weights_bytes(damaged) == damaged.stat().st_size
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "a").write_bytes(bytes(7))
    assert weights_bytes(folder) == 7
    assert weights_bytes(tmp_path / "none.keras") == 0
