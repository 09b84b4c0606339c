"""The words in which a model file is refused."""

from __future__ import annotations

from pathlib import Path

from shrink.errors import ModelError

_REBUILD = "rebuild the model from Keras' own layers, or give the function that builds it"
OR_TRUST = "if you know who made it, load it as it is with --trust-model"
"""What else to do about a file whose code is what it is refused for."""
_AGAIN = "copy the file again, or save the model again with model.save"
_PLAIN_WORDS = {
    "file is not a zip file": "it is no zip archive, or cut short",
    "file signature not found": "it has no HDF5 signature",
    "truncated file": "it is cut short",
    "no item named": "a part of it is missing",
}
"""Plain words for what zipfile and h5py say."""


def refused(reason: str, where: str, path: Path, hint: str = _REBUILD) -> ModelError:
    """Return the error for a file that could do harm, with the exact spot."""
    return ModelError(f"refused: {reason} (at {where!r})", subject=path, hint=hint)


def unreadable(kind: str, error: Exception, path: Path) -> ModelError:
    """Return the error for a file that is damaged or is something else."""
    text = str(error).strip("'\"").split("\n")[0][:300] or type(error).__name__
    plain = next((words for part, words in _PLAIN_WORDS.items() if part in text.lower()), text)
    return ModelError(f"not {kind} that can be read: {plain}", subject=path, hint=_AGAIN)
