"""The process's standard streams, made to survive whatever they are connected to.

A closed descriptor would be handed to the next pipe that is opened, a reader may go away
(`| head -1`), a disk may be full, an encoding may lack a letter: none of these is a bug.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

from shrink.base.errors import ResourceError

_DEFAULT_ENCODING = "utf-8"


def prepare_streams() -> None:
    """Open what was closed, and make stdout and stderr safe to write to."""
    for descriptor in range(3):
        _open_if_closed(descriptor)
    sys.stdout = _safe(sys.stdout, 1, "stdout")
    sys.stderr = _safe(sys.stderr, 2, None)


class SafeOutput(io.RawIOBase):
    """Writes to a descriptor; what a reader that went away would have read is dropped.

    Args:
        descriptor: where to write.
        name: the stream's name in errors; None where a failure to write is nobody's concern.
    """

    def __init__(self, descriptor: int, name: str | None) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._name = name
        self._lost = False

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether a person is looking."""
        return os.isatty(self._descriptor)

    def write(self, data: Any, /) -> int:
        """Write `data` and return how many bytes are done with.

        Raises:
            ResourceError: the disk is full or broken; later calls then drop what they are given.
        """
        if self._lost:
            return len(data)
        try:
            return os.write(self._descriptor, data)
        except BrokenPipeError:
            self._lost = True
        except OSError as error:
            self._lost = True
            if self._name is not None:
                raise ResourceError(
                    f"cannot be written to: {error.strerror}",
                    subject=self._name,
                    hint="free some space, or send the output elsewhere",
                ) from error
        return len(data)


def _open_if_closed(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        # The lowest free descriptor is this one: those below it are open by now.
        os.open(os.devnull, os.O_RDWR)


def _safe(stream: TextIO | None, descriptor: int, name: str | None) -> TextIO:
    if stream is not None:
        stream.flush()
    encoding = stream.encoding if stream is not None else _DEFAULT_ENCODING
    return io.TextIOWrapper(
        io.BufferedWriter(SafeOutput(descriptor, name)),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=True,
    )
