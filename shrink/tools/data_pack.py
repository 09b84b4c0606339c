"""A data set written as sharded TFRecord files with a manifest, and images written back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf
from PIL import Image

from shrink.base import files
from shrink.base.errors import DataError, RecipeError
from shrink.base.progress import Share
from shrink.base.types import Json, Specs, Tensors
from shrink.contract.events import Send
from shrink.contract.findings import Packed, Unpacked
from shrink.contract.job import PackJob, UnpackJob
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.examples import SPLIT_NAMES, Examples, example_bytes, reading_batch
from shrink.data.fingerprint import fingerprint
from shrink.data.opening import open_dataset
from shrink.data.pipeline import evaluation_batches, naming_bad_examples
from shrink.data.shards import MANIFEST

_STATE = "shrink-pack.json"
_FORMAT = 1


def data_pack(job: PackJob, send: Send) -> Packed:
    """Write the job's data as shards of TFRecord files, by split.

    Splits are those of a run with the same seed; examples are stored as they would be fed,
    without normalization and augmentation. A shard that is there is not written again, as long as
    data and settings are the same.
    """
    config = DataConfig.model_validate(job.data)
    plain = config.model_copy(update={"normalize": None, "augment": None, "cache": "none"})
    dataset, folder = open_dataset(plain, job.seed), job.output
    settings = {"data": job.data, "seed": job.seed}
    settings |= {"shard_bytes": job.shard_bytes, "encoding": job.encoding}
    state = {"format": _FORMAT, "fingerprint": fingerprint(config), **settings}
    _begin(folder, state)
    packer = _Packer(config, dataset, job.encoding)
    shards: dict[str, list[str]] = {}
    written = 0
    for split in SPLIT_NAMES:
        examples: Examples = getattr(dataset, split)
        shards[split] = []
        done = 0
        for name, indices in _shards(split, examples, packer, job.shard_bytes):
            target = folder / name
            shards[split].append(name)
            if not target.is_file():
                packer.write(target, examples, indices)
                written += 1
            done += len(indices)
            send(Share(f"packing {split}", done, len(examples)))
    counts = {split: len(getattr(dataset, split)) for split in SPLIT_NAMES}
    files.write_json(folder / MANIFEST, {**packer.manifest(), "examples": counts, "shards": shards})
    (folder / _STATE).unlink(missing_ok=True)
    names = [name for of_split in shards.values() for name in of_split]
    return Packed(
        path=str(folder),
        examples=counts,
        shards=len(names),
        written=written,
        bytes=sum((folder / name).stat().st_size for name in names),
    )


def data_unpack(job: UnpackJob, send: Send) -> Unpacked:
    """Write the images of the job's data as PNG files, `split/class/number.png`.

    Raises:
        DataError: inputs are no images of 8 bits, or there are no labels.
    """
    config = DataConfig.model_validate(job.data)
    dataset, folder = open_dataset(config, job.seed), job.output
    spec = dataset.train.input_spec
    images = isinstance(spec, tf.TensorSpec) and spec.dtype == tf.uint8 and spec.shape.rank == 3
    if not images or dataset.train.labels is None or spec.shape[-1] not in (1, 3):
        raise DataError(
            "only images of 8 bits with labels can become folders of images",
            subject=config.path,
            hint="read other data where it is: every command takes TFRecord files",
        )
    counts = {}
    for split in SPLIT_NAMES:
        examples: Examples = getattr(dataset, split)
        counts[split] = len(examples)
        with files.replacing(folder / split) as temporary:
            for start, x, y in _batches(examples, np.arange(len(examples))):
                for offset, (image, label) in enumerate(zip(x, y, strict=True)):
                    name = dataset.class_names[int(label)] if dataset.class_names else str(label)
                    target = temporary / _safe(name) / f"{start + offset:07d}.png"
                    target.parent.mkdir(parents=True, exist_ok=True)
                    Image.fromarray(image.squeeze(-1) if spec.shape[-1] == 1 else image).save(
                        target
                    )
                send(Share(f"writing {split}", start + len(x), len(examples)))
    return Unpacked(path=str(folder), examples=counts)


class _Packer:
    """Writes examples as records: each part of an input or target is a feature.

    Args:
        config: names of inputs and targets.
        dataset: what is packed.
        encoding: raw, or png for images.
    """

    def __init__(self, config: DataConfig, dataset: Dataset, encoding: str) -> None:
        self._dataset = dataset
        self._inputs = _names(config.inputs, dataset.train.input_spec, "x")
        targets = None if config.source == "images" else config.targets
        has_targets = config.target == "label"
        self._targets = _names(targets, dataset.train.target_spec, "y") if has_targets else {}
        self._encoding = encoding
        if encoding == "png":
            _check_images(self._inputs)

    @property
    def example_bytes(self) -> int:
        """Bytes of one example, uncompressed."""
        return example_bytes(self._inputs, self._targets)

    def manifest(self) -> dict[str, object]:
        """Return what reading the shards needs to know."""
        features = {name: self._input_feature(spec) for name, spec in self._inputs.items()}
        features |= {name: _target_feature(spec) for name, spec in self._targets.items()}
        return {
            "format": _FORMAT,
            "features": features,
            "inputs": list(self._inputs),
            "targets": list(self._targets),
            "class_names": list(self._dataset.class_names),
            "num_classes": self._dataset.num_classes,
        }

    def write(self, target: Path, examples: Examples, indices: np.ndarray) -> None:
        """Write one shard, whole or not at all."""
        with files.replacing(target) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
            for _, x, y in _batches(examples, indices):
                inputs, targets = tf.nest.flatten(x), tf.nest.flatten(y)
                for row in range(len(inputs[0])):
                    writer.write(self._record([p[row] for p in inputs], [p[row] for p in targets]))

    def _record(self, x: list[np.ndarray], y: list[np.ndarray]) -> bytes:
        features = {}
        for (name, spec), value in zip(self._inputs.items(), x, strict=True):
            content = value.astype(spec.dtype.as_numpy_dtype().dtype.newbyteorder("<")).tobytes()
            if self._encoding == "png":
                content = tf.io.encode_png(value).numpy()
            features[name] = _bytes_feature(content)
        for (name, spec), value in zip(self._targets.items(), y, strict=False):
            features[name] = _numbers_feature(spec, value)
        example = tf.train.Example(features=tf.train.Features(feature=features))
        return bytes(example.SerializeToString())

    def _input_feature(self, spec: tf.TensorSpec) -> dict[str, object]:
        shape = spec.shape.as_list()
        if self._encoding == "png":
            return {"type": "picture", "shape": shape}
        return {"type": "raw", "dtype": spec.dtype.name, "shape": shape}


def _begin(folder: Path, state: Mapping[str, object]) -> None:
    """Make the folder ready; shards of other data or settings must not be taken for these."""
    if folder.is_dir() and any(folder.iterdir()):
        recorded = _recorded(folder / _STATE)
        if recorded is None and (folder / MANIFEST).is_file():
            raise RecipeError(
                "packed data are there already", subject=folder, hint="name another --output"
            )
        if recorded != state:
            raise RecipeError(
                "the folder holds something else",
                subject=folder,
                hint="name an empty folder with --output",
            )
        return
    files.make_folder(folder)
    files.write_json(folder / _STATE, state)


def _recorded(path: Path) -> Json:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _shards(
    split: str, examples: Examples, packer: _Packer, shard_bytes: int
) -> Iterator[tuple[str, np.ndarray]]:
    per_shard = max(1, shard_bytes // max(1, packer.example_bytes))
    count = -(-len(examples) // per_shard)
    for number in range(count):
        indices = np.arange(number * per_shard, min((number + 1) * per_shard, len(examples)))
        yield f"{split}-{number:05d}-of-{count:05d}.tfrecord", indices


def _batches(examples: Examples, indices: np.ndarray) -> Iterator[tuple[int, Tensors, Tensors]]:
    start = 0
    with naming_bad_examples(examples):
        batch = reading_batch(examples.input_spec, examples.target_spec)
        for x, y in evaluation_batches(examples, batch, indices).as_numpy_iterator():
            yield start, x, y
            start += len(tf.nest.flatten(x)[0])


def _names(names: tuple[str, ...] | None, specs: Specs, default: str) -> dict[str, tf.TensorSpec]:
    flat = tf.nest.flatten(specs)
    if names is None or len(names) != len(flat):
        names = (default,) if len(flat) == 1 else tuple(f"{default}{i}" for i in range(len(flat)))
    return dict(zip(names, flat, strict=True))


def _check_images(specs: Mapping[str, tf.TensorSpec]) -> None:
    for name, spec in specs.items():
        if spec.dtype != tf.uint8 or spec.shape.rank != 3 or spec.shape[-1] not in (1, 3):
            raise RecipeError(
                f"{name} is no image of 8 bits", subject="--encoding png", hint="--encoding raw"
            )


def _target_feature(spec: tf.TensorSpec) -> dict[str, object]:
    kind = "int64" if spec.dtype.is_integer else "float32"
    return {"type": kind, "shape": spec.shape.as_list()}


def _bytes_feature(content: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))


def _numbers_feature(spec: tf.TensorSpec, value: np.ndarray) -> tf.train.Feature:
    numbers = np.asarray(value).reshape(-1).tolist()
    if spec.dtype.is_integer:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=numbers))
    return tf.train.Feature(float_list=tf.train.FloatList(value=numbers))


def _safe(name: str) -> str:
    return name.replace("/", "_").lstrip(".") or "_"
