"""Runs artifacts in LiteRT."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from shrink.base.errors import DataError, ModelError
from shrink.tflite.names import Named, ordered
from shrink.tflite.session import Arrays, Session, TensorDetail

# A row that was run in a batch may differ from the row alone by rounding only.
_RELATIVE_TOLERANCE = 1e-3


class Runner:
    """An artifact that is ready to run.

    Attributes:
        input_details: name, shape, dtype, scale and zero point, in the artifact's order of inputs,
            which need not be the Keras model's; arrays are given by name.
        output_details: likewise, in the order of the numbers that their signature's names end in;
            artifacts made by `shrink.tflite.convert` have the Keras order.
        output_places: the place of each of these among the outputs of the file.
    """

    def __init__(self, content: bytes, num_threads: int) -> None:
        self._content = content
        self._num_threads = num_threads
        self._single = Session(content)
        self._resizable = True
        self._sessions: list[Session] = []  # one per thread, all of one batch
        self.input_details: tuple[TensorDetail, ...] = self._single.inputs
        self.output_details: tuple[TensorDetail, ...] = self._single.outputs
        self.output_places: tuple[int, ...] = self._single.output_places

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in the artifact's order."""
        return tuple(detail.name for detail in self.input_details)

    def predict(
        self, inputs: Named | np.ndarray[Any, Any], batch_size: int = 250
    ) -> list[np.ndarray[Any, Any]]:
        """Return the outputs for n examples, a float32 array (n, ...) for each model output.

        Args:
            inputs: an array (n, ...) for each input by its name, or the array of the only input.
                Integer inputs are quantized from it: rounded half to even, then clipped.
            batch_size: the number of examples per invocation, where the graph can be resized.

        Raises:
            DataError: names or shapes of the arrays are not those of the artifact's inputs.
            ModelError: the artifact fails while running.
        """
        arrays = ordered(inputs, self.input_names)
        count = self._check(arrays)
        if count == 0:
            return [np.zeros((0, *d.shape[1:]), np.float32) for d in self.output_details]
        share = math.ceil(count / self._num_threads)
        sessions = self._sessions_for(arrays, min(batch_size, share))
        if len(sessions) == 1:
            return _run_all(sessions[0], arrays)
        parts = np.array_split(np.arange(count), len(sessions))
        # An interpreter releases the GIL while it runs, so threads do run side by side; the
        # threads inside one interpreter leave its reference kernels on a single core.
        with ThreadPoolExecutor(len(sessions)) as pool:
            jobs = [
                pool.submit(_run_all, session, [array[part] for array in arrays])
                for session, part in zip(sessions, parts, strict=True)
            ]
            results = [job.result() for job in jobs]
        return [np.concatenate(column) for column in zip(*results, strict=True)]

    def _sessions_for(self, arrays: Arrays, batch: int) -> list[Session]:
        """Return a session for each thread that has work, of `batch` rows or a few more."""
        own = self._single.batch
        batch = max(batch, own) if self._resizable else own
        # Sessions somewhat larger than needed are filled up: cheaper than proving others.
        if not self._sessions or not batch <= self._sessions[0].batch <= 4 * batch:
            self._sessions = [self._proven(arrays, batch) or self._single]
        batch = self._sessions[0].batch
        needed = min(self._num_threads, math.ceil(len(arrays[0]) / batch))
        while len(self._sessions) < needed:
            self._sessions.append(Session(self._content, batch))
        return self._sessions[:needed]

    def _proven(self, arrays: Arrays, batch: int) -> Session | None:
        """Return a session of `batch` rows that is proven on these rows, or None."""
        if batch > self._single.batch:
            try:
                session = Session(self._content, batch)
                if _agrees(session, self._single, [array[:batch] for array in arrays]):
                    return session
            except ModelError:
                pass  # it cannot be resized, or not run so: it still runs as it was made
            self._resizable = False
        return None

    def _check(self, arrays: Arrays) -> int:
        for array, detail in zip(arrays, self.input_details, strict=True):
            if array.shape[1:] != detail.shape[1:] or len(array) != len(arrays[0]):
                raise DataError(
                    f"an array of shape {array.shape} does not suit the artifact's input "
                    f"{detail.shape}",
                    subject=detail.name,
                )
        return len(arrays[0])


def load(content_or_path: bytes | str | Path, num_threads: int = 2) -> Runner:
    """Return a `Runner` for a .tflite file or its content.

    Raises:
        ModelError: the file is missing, is no TFLite model, or no kernel can run it.
    """
    if isinstance(content_or_path, bytes):
        return Runner(content_or_path, num_threads)
    try:
        content = Path(content_or_path).read_bytes()
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror}", subject=content_or_path) from error
    return Runner(content, num_threads)


def _agrees(batched: Session, single: Session, arrays: Arrays) -> bool:
    """Tell whether the first and the last row come out of a batch as they do alone.

    A reshape with a constant batch can survive a resize and mix the rows.
    """
    together = batched.run(arrays)
    for row in {0, len(arrays[0]) - 1}:
        alone = single.run([a[row : row + 1] for a in arrays])
        for mixed, right, detail in zip(together, alone, single.outputs, strict=True):
            slack = _RELATIVE_TOLERANCE * float(np.abs(right).max(initial=0)) + detail.scale
            if mixed.shape[1:] != right.shape[1:] or not np.allclose(
                mixed[row], right[0], rtol=0, atol=slack + 1e-6, equal_nan=True
            ):
                return False
    return True


def _run_all(session: Session, arrays: Arrays) -> Arrays:
    starts = range(0, len(arrays[0]), session.batch)
    chunks = [session.run([a[i : i + session.batch] for a in arrays]) for i in starts]
    return [np.concatenate(column) for column in zip(*chunks, strict=True)]


_COUNT = 16


def random_inputs(content: bytes) -> Named:
    """Return seeded random numbers, float32 (16, ...), by the names of an artifact's inputs.

    Real inputs lie in [0, 1); integers, which may be indices, are 0 or 1.

    Args:
        content: the .tflite file.
    """
    rng = np.random.default_rng(0)

    def one(detail: TensorDetail) -> np.ndarray:
        shape = (_COUNT, *detail.shape[1:])
        drawn = rng.random(shape) if detail.dtype.kind == "f" else rng.integers(0, 2, shape)
        return drawn.astype(np.float32)

    return {detail.name: one(detail) for detail in load(content).input_details}
