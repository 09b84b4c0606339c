"""Windows of images too large to decode whole: TIFF pyramids, such as slides in histopathology.

`path` is a CSV file with the columns `path,x,y` and a label, and maybe `split`: one row for each
window of `image_size`, with its top left corner in pixels of `level`. Only the tiles of the file
that a window touches are read.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from shrink.base.errors import DataError, ResourceError
from shrink.base.file_hashes import DIGEST_BYTES, hash_files
from shrink.base.packages import extra_hint
from shrink.data.arrays import LazyRows
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.folders import shown
from shrink.data.source_table import SourceTable
from shrink.data.sources.csv import listed_splits, numbers
from shrink.data.sources.images import listed_targets
from shrink.data.table import read_listing

if TYPE_CHECKING:
    import tifffile

_MOST_SEGMENT_BYTES = 64 * 1000**2
_OPEN_FILES = 64
_HINT = "save it as a tiled TIFF, for example with vips tiffsave --tile --pyramid"


@dataclass(frozen=True)
class _Level:
    """One resolution of a TIFF file: a page of tifffile's, and a descriptor to read from.

    `decode` is the page's, made while the file was open: codecs such as JPEG read tables from it.
    """

    page: tifffile.TiffPage
    decode: Callable[..., Any]
    descriptor: int
    path: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the page."""
        height, width = self.page.imagelength, self.page.imagewidth
        return int(height), int(width), int(self.page.samplesperpixel)

    def window(self, top: int, left: int, height: int, width: int) -> np.ndarray:
        """Return pixels (height, width, channels), uint8, pasted from the tiles around them."""
        rows, columns = self._segment_size()
        across = -(-self.shape[1] // columns)
        window = np.zeros((height, width, self.shape[2]), np.uint8)
        for row in range(top // rows, -(-(top + height) // rows)):
            for column in range(left // columns, -(-(left + width) // columns)):
                tile = self._segment(row * across + column)
                if tile is not None:
                    _paste(window, tile, row * rows - top, column * columns - left)
        return window

    def _segment_size(self) -> tuple[int, int]:
        if self.page.is_tiled:
            return int(self.page.tilelength), int(self.page.tilewidth)
        return int(self.page.rowsperstrip), self.shape[1]

    def _segment(self, index: int) -> np.ndarray | None:
        """Return a decoded tile or strip, or None for one that is not stored."""
        count = int(self.page.databytecounts[index])
        if count == 0:
            return None
        content = os.pread(self.descriptor, count, int(self.page.dataoffsets[index]))
        if len(content) < count:
            raise DataError("the file is cut short", subject=shown(self.path), hint=_HINT)
        try:
            decoded, _, shape = self.decode(content, index)
        except Exception as error:  # whatever the codec of the moment raises
            raise DataError(
                f"a tile cannot be decoded: {type(error).__name__}: {error}",
                subject=shown(self.path),
                hint=extra_hint("tiles") if "imagecodecs" in str(error) else "write the file again",
            ) from error
        return None if decoded is None else decoded[0, : shape[1], : shape[2]]


class Windows:
    """Windows of TIFF files, read when asked for.

    Args:
        files: int (n,), which of `paths` each window is in.
        paths: of the TIFF files.
        corners: int64 (n, 2), row and column of the top left pixel.
        size: height and width.
        level: of the pyramid, 0 is the finest.
    """

    def __init__(
        self,
        files: np.ndarray,
        paths: Sequence[str],
        corners: np.ndarray,
        size: tuple[int, int],
        level: int,
    ) -> None:
        self._files, self._paths, self._corners = files, tuple(paths), corners
        self._size, self._number = size, level
        self._lock = threading.Lock()
        self._opened = functools.lru_cache(_OPEN_FILES)(self._open)
        self._channels = self._level(0).shape[2]

    def rows(self) -> LazyRows:
        """Return them as an array (n, height, width, channels), uint8."""
        shape = (*self._size, self._channels)

        def read(numbers: np.ndarray) -> np.ndarray:
            windows = np.empty((len(numbers), *shape), np.uint8)
            for window, number in zip(windows, numbers.tolist(), strict=True):
                window[:] = self._read(number)
            return windows

        return LazyRows(read, (len(self._files), *shape), np.uint8)

    def _read(self, number: int) -> np.ndarray:
        level = self._level(int(self._files[number]))
        (top, left), (height, width) = self._corners[number].tolist(), self._size
        inside = 0 <= top <= level.shape[0] - height and 0 <= left <= level.shape[1] - width
        if not inside or level.shape[2] != self._channels:
            raise DataError(
                f"the window at x {left}, y {top} of {height} x {width} pixels does not fit into "
                f"{level.shape} (height, width, channels)",
                subject=shown(level.path),
                hint="correct the row, data.image_size or data.level",
            )
        return level.window(top, left, height, width)

    def _level(self, file: int) -> _Level:
        with self._lock:  # two threads must not open one file twice
            return self._opened(file)

    def _open(self, file: int) -> _Level:
        reader = _tifffile()
        path = self._paths[file]
        try:
            with reader.TiffFile(path) as tiff:
                pages = tiff.series[0].levels if tiff.series else []
                if self._number >= len(pages):
                    raise DataError(
                        f"there is no level {self._number}; there are {len(pages)}",
                        subject=shown(path),
                        hint="lower data.level",
                    )
                page = pages[self._number].pages[0].aspage()
                decode = functools.partial(page.decode, jpegtables=page.jpegtables)
        except (OSError, ValueError, reader.TiffFileError) as error:
            raise DataError(f"not a TIFF file: {error}", subject=shown(path), hint=_HINT) from error
        segment = int(np.prod(page.chunks)) * page.dtype.itemsize
        if page.dtype != np.uint8 or page.planarconfig != 1:
            raise DataError(
                f"pixels of {page.dtype}, planes {page.planarconfig}; tiles are of 8 bits with the "
                "channels side by side",
                subject=shown(path),
                hint=_HINT,
            )
        if segment > _MOST_SEGMENT_BYTES:
            raise DataError(
                f"its tiles or strips take {segment / 1e6:,.0f} MB each",
                subject=shown(path),
                hint=_HINT,
            )
        return _Level(page, decode, os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the windows that the CSV file `config.path` lists.

    Raises:
        DataError: the list is wrong, `image_size` is missing, or a file is no TIFF.
        ResourceError: the package tifffile is missing.
    """
    path = Path(config.path or "").expanduser().absolute()
    if config.image_size is None:
        raise DataError(
            "the size of a window is missing", subject=path, hint="data.image_size: [256, 256]"
        )
    targets = config.targets or ("label",)
    table = read_listing(path, ("x", "y", *targets))
    names, values = listed_targets(path, table, targets, config.classes)
    places = [numbers(path, column, table, np.float64) for column in ("y", "x")]
    corners = np.stack(places, 1).astype(np.int64)
    unique, files = np.unique(np.array(table.cells["path"]), return_inverse=True)
    paths = [str(path.parent / file) for file in unique]
    windows = Windows(files, paths, corners, config.image_size, config.level)
    return SourceTable(
        path,
        listed_splits(path, table),
        values,
        windows.rows(),
        names,
        names=table.cells["path"],
        root=path.parent,
        columns=table.cells,
        contents=_windows(path, list(unique), files, corners, (*config.image_size, config.level)),
        identified_by="window",
    ).open(config, seed)


def _windows(
    path: Path, names: Sequence[str], files: np.ndarray, corners: np.ndarray, form: tuple[int, ...]
) -> np.ndarray:
    """Return what tells each window from others without decoding it, uint64 (n,).

    Args:
        path: of the CSV file.
        names: of the TIFF files.
        files: int (n,), which of them each window is in.
        corners: int64 (n, 2) of each window.
        form: height, width and level of all of them.
    """
    digests = hash_files(path.parent, names, path)
    hashes = np.empty(len(files), np.uint64)
    for index, (file, (top, left)) in enumerate(zip(files, corners, strict=True)):
        content = digests[file * DIGEST_BYTES : (file + 1) * DIGEST_BYTES]
        window = hashlib.blake2b(content + repr((int(top), int(left), *form)).encode())
        hashes[index] = int.from_bytes(window.digest()[:8], "little")
    return hashes


def _paste(window: np.ndarray, tile: np.ndarray, top: int, left: int) -> None:
    """Copy the part of a tile that lies in the window; (top, left) is its place there."""
    height, width = window.shape[:2]
    rows = slice(max(top, 0), min(top + tile.shape[0], height))
    columns = slice(max(left, 0), min(left + tile.shape[1], width))
    if rows.start < rows.stop and columns.start < columns.stop:
        window[rows, columns] = tile[
            rows.start - top : rows.stop - top, columns.start - left : columns.stop - left
        ]


def _tifffile() -> ModuleType:
    try:
        import tifffile
    except ImportError as error:
        raise ResourceError(
            "source: tiles needs the package tifffile", hint=extra_hint("tiles")
        ) from error
    return tifffile
