"""Keras models in memory, saved once and named by their content hash, so that the cache works."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tempfile
import warnings
import zipfile
from pathlib import Path

from shrink.base import files
from shrink.base.cache import cache_root, mark_used
from shrink.base.errors import ModelError, first_line
from shrink.base.foreign import Json, JsonObject
from shrink.contract.usage import cached_record, identity, write_record

_SHARED = "shared_object_id"
_DAY = (1980, 1, 1, 0, 0, 0)
_SAVED = "1980-01-01@00:00:00"
_DIGITS = 16
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


def is_keras_model(model: object) -> bool:
    """Whether an object is a model of tf-keras or of Keras 3; neither is imported to tell."""
    roots = {"keras", "tf_keras"}
    return any(
        kind.__name__ == "Model" and kind.__module__.partition(".")[0] in roots
        for kind in type(model).__mro__
    )


def saved_model(model: object) -> Path:
    """Save a model into the cache, unless it is there, and return the file.

    The file holds no date and no addresses of objects: the same layers, weights and compilation
    give the same bytes, today and elsewhere.

    Raises:
        ModelError: Keras cannot save it.
    """
    name = _NOT_IN_NAMES.sub("-", str(getattr(model, "name", ""))).strip("-.") or "model"
    with tempfile.TemporaryDirectory(prefix=files.TEMPORARY_PREFIX) as folder:
        path = Path(folder, "model.keras")
        _save(model, path)
        content = _archive(_members(path))
        digest = hashlib.sha256(content).hexdigest()[:_DIGITS]
        target = cache_root() / "inputs" / digest / f"{name}.keras"
        if target.is_file():
            mark_used(target)
        else:
            files.write_bytes(target, content)
        if getattr(model, "optimizer", None) is not None:
            # Optimizer and metrics have weights in the file, which hide what model it is.
            with contextlib.suppress(Exception):  # not every subclass has a configuration
                remembered = target.with_suffix(".identity")
                if not remembered.is_file():
                    plain = type(model).from_config(model.get_config())  # type: ignore[attr-defined]
                    plain.set_weights(model.get_weights())  # type: ignore[attr-defined]
                    _save(plain, path)
                    files.write_text(remembered, identity(path))
                write_record(target, cached_record(remembered.read_text(encoding="utf-8")))
    return target


def _save(model: object, path: Path) -> None:
    save = getattr(model, "save", None)
    if not callable(save):
        raise ModelError("this model cannot be saved", subject=type(model).__name__)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            save(str(path))
    except Exception as error:  # Keras raises whatever its layers raise
        raise ModelError(
            f"Keras cannot save this model: {type(error).__name__}: {first_line(error)}",
            subject=str(getattr(model, "name", type(model).__name__)),
            hint="build it as a functional or sequential model, or give 'file.py:function'",
        ) from error


def _members(path: Path) -> dict[str, bytes]:
    """Read an archive; shared objects have numbers for their addresses, and the date is fixed."""
    seen: dict[Json, int] = {}

    def numbered(one: JsonObject) -> JsonObject:
        known = {_SHARED: seen.setdefault(one[_SHARED], len(seen) + 1)} if _SHARED in one else {}
        return one | known

    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in sorted(archive.namelist())}
    config = json.loads(members["config.json"], object_hook=numbered)
    members["config.json"] = json.dumps(config).encode()
    metadata = json.loads(members["metadata.json"]) | {"date_saved": _SAVED}
    members["metadata.json"] = json.dumps(metadata).encode()
    return members


def _archive(members: dict[str, bytes]) -> bytes:
    import io

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, _DAY), content)
    return stream.getvalue()
