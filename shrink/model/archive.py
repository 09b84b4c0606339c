"""Weights in `.keras` files, read whole before HDF5 seeks in them.

tf-keras opens the HDF5 file inside the archive through `zipfile`, which goes back by reading from
the entry's beginning again: 11 of the 12 seconds of processor time that loading a ResNet50 takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import h5py
from tf_keras.src.saving import saving_lib

from shrink.model.scan_files import WEIGHTS, open_weights


@contextlib.contextmanager
def weights_where_they_lie(path: Path) -> Iterator[None]:
    """Have tf-keras read the weights of one checked `.keras` file without seeking in `zipfile`."""

    class Store(saving_lib.H5IOStore):
        def __init__(self, root_path: str, archive: object = None, mode: str = "r") -> None:
            stream = open_weights(path) if root_path == WEIGHTS and archive else None
            if mode != "r" or stream is None:
                super().__init__(root_path, archive, mode)
                return
            self.root_path, self.archive, self.mode = root_path, archive, mode
            self.io_file = stream
            self.h5_file = h5py.File(stream, mode=mode)

        def get(self, path: str) -> object:
            on_windows = path.replace("/", "\\")  # how Keras 2 names groups there
            return super().get(on_windows if on_windows in self.h5_file else path)

    own = saving_lib.H5IOStore
    saving_lib.H5IOStore = Store
    try:
        yield
    finally:
        saving_lib.H5IOStore = own
