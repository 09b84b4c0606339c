"""The built-in sources. Their heavy parts are in the modules of the same names in `sources/`."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from shrink.base.file_hashes import hash_file, hashes_of, named_hashes, place
from shrink.data.box_files import read_boxes
from shrink.data.config import DataConfig, Source, existing
from shrink.data.early import array_names, open_archive, slice_columns, stored_arrays
from shrink.data.folders import CLIPS, IMAGES, TEXTS, find_images
from shrink.data.pairs import find_pairs
from shrink.data.shards import described, find_shards, prepared_folder
from shrink.data.table import feature_columns, is_parquet, read_header, read_listing
from shrink.model.user_reads import code_digest, declared_digests

_PICTURES = ("image_size", "channels")
_MOST_BYTES = {"npz": 128 * 1000**2, "csv": 4 * 1000**2}
"""Files up to this size (unpacked) are read as a whole, which takes a fraction of a second."""


class NoData(Source):
    """No examples."""

    needs_path = False

    def content(self, config: DataConfig) -> Iterator[str]:
        """Yield nothing."""
        yield from ()


class Digits(NoData):
    """scikit-learn's handwritten digits."""

    def identity(self) -> str:
        """Return the version of scikit-learn, which has them."""
        return f"digits of scikit-learn {importlib.metadata.version('scikit-learn')}"


class _OneFile(Source):
    def content(self, config: DataConfig) -> Iterator[str]:
        """Yield the hash of the file, which is remembered."""
        path = existing(self.path(config))
        yield from hashes_of(path.parent, [path.name], path)


class Images(Source):
    """Images in folders by class, or in a list."""

    keys: tuple[str, ...] = _PICTURES
    has_columns = has_paths = True
    kind = IMAGES

    def files(self, config: DataConfig) -> tuple[Path, Sequence[str], list[str]]:
        """Return the files, each once.

        Returns:
            The folder that names are relative to, where they are not absolute; the names; and the
            folders of classes that are empty, which decide what is a class as the files do.
        """
        path = self.path(config)
        if not path.is_dir():
            return path.parent, list(dict.fromkeys(read_listing(path, ()).cells["path"])), []
        found = find_images(path, self.kind, flat=config.target != "label")
        empty = [
            f"{split}/{name}/"
            for split, own in found.splits.items()
            for name, files in own.items()
            if not files
        ]
        return path, found.names, empty

    def content(self, config: DataConfig) -> Iterator[str]:
        """Yield the hash of the list, names and hashes of all files, and empty folders."""
        path = existing(self.path(config))
        root, names, empty = self.files(config)
        if path.is_file():
            yield hash_file(str(path))
        yield from named_hashes(root, names, path)
        yield from empty

    def hashes(self, config: DataConfig) -> dict[str, str]:
        """Return the SHA-256 of each file, in hex, by its absolute path.

        Raises:
            DataError: a file, its folder or its list cannot be read.
        """
        root, names, _ = self.files(config)
        digests = hashes_of(root, names, self.path(config))
        return {place(root, name): digest for name, digest in zip(names, digests, strict=True)}

    def fit(
        self, config: DataConfig, image_input: Callable[[], tuple[int, int, int] | None]
    ) -> tuple[DataConfig, str | None]:
        """Bring images to the shape that a model takes, where the section leaves it open."""
        if self.name != "images":
            return config, None
        fitted: tuple[DataConfig, str | None] = self.module.fitted_to(config, image_input)
        return fitted


class Tiles(Images):
    """Windows of TIFF files."""


class Audio(Images):
    """WAV files in folders by class, or in a list."""

    keys = ("audio",)
    kind = CLIPS


class Masks(Images):
    """Images with a mask each."""

    has_columns = False

    def files(self, config: DataConfig) -> tuple[Path, Sequence[str], list[str]]:
        """Return images and masks."""
        path = self.path(config)
        return path, find_pairs(path).names(), []


class Boxes(Images):
    """Pictures with boxes."""

    has_columns = False

    def files(self, config: DataConfig) -> tuple[Path, Sequence[str], list[str]]:
        """Return pictures and annotations."""
        path = self.path(config)
        root = path if path.is_dir() else path.parent
        files = sorted(set(read_boxes(path, config.classes).files))
        return root, [str(file.relative_to(root)) for file in files], []

    def content(self, config: DataConfig) -> Iterator[str]:
        """Yield names and hashes of all files."""
        path = existing(self.path(config))
        root, names, _ = self.files(config)
        yield from named_hashes(root, names, path)


class Npz(_OneFile):
    """Arrays in an .npz file."""

    has_columns = True
    endings = (".npz",)

    def check(self, config: DataConfig) -> None:
        """Open a small file as the worker will; of a large one find arrays that are missing."""
        path = Path(config.path or "").expanduser()
        with open_archive(path) as archive:
            small = sum(one.file_size for one in archive.infolist()) <= _MOST_BYTES["npz"]
        if small:
            self.open(config, 0)
        else:
            stored_arrays(path, array_names(path), config)


class Hdf5(_OneFile):
    """Arrays in an HDF5 file."""

    has_columns = True
    endings = (".h5", ".hdf5")


class Csv(_OneFile):
    """A table of numbers."""

    has_columns = True
    endings = (".parquet", ".pq")

    def check(self, config: DataConfig) -> None:
        """Open a small table as the worker will; of a large one find columns that are missing."""
        path = Path(config.path or "").expanduser()
        if is_parquet(path):
            return
        if path.is_file() and path.stat().st_size <= _MOST_BYTES["csv"]:
            self.open(config, 0)
            return
        columns = read_header(path)
        feature_columns(path, columns, config)
        slice_columns(path, columns, config)


class Series(_OneFile):
    """Windows of time series."""

    keys = ("series",)


class Text(Images):
    """Texts in a table, or in folders by class."""

    keys = ("tokens",)
    has_paths = False
    kind = TEXTS
    endings = (".jsonl", ".ndjson")

    def content(self, config: DataConfig) -> Iterator[str]:
        """Yield what identifies the folders or the table."""
        path = existing(self.path(config))
        if path.is_dir():
            yield from super().content(config)
        else:
            yield from hashes_of(path.parent, [path.name], path)


class Tfrecord(Source):
    """Sharded files of `tf.train.Example`."""

    def shards(self, config: DataConfig) -> dict[str, str]:
        """Return the SHA-256 of each file, in hex, by its absolute path.

        Raises:
            DataError: nothing is there, or it cannot be read.
        """
        path = self.path(config)
        names = sorted(str(file) for shards in find_shards(path).values() for file in shards)
        return dict(zip(names, hashes_of(path.parent, names, path), strict=True))

    def content(self, config: DataConfig) -> Iterator[str]:
        """Yield each shard's split and its hash, as they are read."""
        hashes = self.shards(config)
        for split, shards in sorted(find_shards(self.path(config)).items()):
            for shard in shards:
                yield f"{split}\0False\0{hashes[str(shard)]}"  # as fingerprints always had it

    def check(self, config: DataConfig) -> None:
        """Raise `DataError` for a feature that is not declared."""
        described(Path(config.path or "").expanduser(), config)


class Lmdb(Tfrecord):
    """The same records in an LMDB file."""

    endings = (".lmdb",)

    def content(self, config: DataConfig) -> Iterator[str]:
        """Yield the hash of the file."""
        path = existing(self.path(config))
        root, name = (path, "data.mdb") if path.is_dir() else (path.parent, path.name)
        yield from hashes_of(root, [name], path)


class Tfds(Source):
    """A data set that TensorFlow Datasets has prepared."""

    def content(self, config: DataConfig) -> Iterator[str]:
        """Yield names and hashes of its files."""
        folder = prepared_folder(self.path(config))
        yield from named_hashes(folder, sorted(f.name for f in folder.iterdir() if f.is_file()))


class Python(Source):
    """A function that gives examples."""

    keys = ("audio", "depends")
    has_columns = True

    def content(self, config: DataConfig) -> Iterator[str]:
        """Yield the function's name and place, what it is known to read, and `data.depends`.

        The place counts, for a function may read what lies beside it unseen.
        """
        text, _, function = (config.path or "").rpartition(":")
        path = existing(Path(text).expanduser().absolute())
        yield from (function, os.path.realpath(path), code_digest(path))
        yield from declared_digests(path.parent, config.depends or ())
