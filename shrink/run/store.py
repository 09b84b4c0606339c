"""The cache of finished steps: a folder for each, in which the manifest is written last.

Layout under the root:

    steps/<key>/manifest.json       of a finished step: its result and its files
    steps/<key>/<sha256><suffix>    its files; of several steps with the same file each has a link
    locks/<name>.lock               who computes a step, or writes a run folder, holds its lock
    work/<random>/                  a worker's folder, which is locked while it is in use
    checkpoints/<key>/              of a step that is being computed, or was when its run died

Other entries of the cache, and what is removed after a time, are in `shrink.base.cache`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from shrink.base import cache, files
from shrink.base.errors import ResourceError
from shrink.base.foreign import Json
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.result import StepManifest, StepResult, StoredFile

_MANIFEST, _MANIFEST_VERSION = "manifest.json", 1
_WRITERS = "writers.lock"
"""The lock that every run shares; it is never removed."""


@dataclass(frozen=True)
class StoredStep:
    """A finished step: the worker's result and its files by role."""

    key: str
    result: StepResult
    files: Mapping[str, Path]


class Store:
    """Finished steps on disk, shared by any number of runs at the same time.

    Args:
        root: the store's folder; created when missing.
        warn: called with a warning for every corrupt entry.
    """

    def __init__(self, root: Path, warn: Callable[[str], None]) -> None:
        self.root = root
        self._warn = warn
        for name in ("locks", "work", *cache.ENTRY_KINDS):
            folder = root / name
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ResourceError(
                    f"the cache cannot be written to: {error.strerror}",
                    subject=folder,
                    hint="choose another place with SHRINK_CACHE_DIR",
                ) from error

    def find(self, key: str) -> StoredStep | None:
        """Return a finished step, or None; a corrupt entry is a warning and a miss."""
        manifest = self._manifest(key)
        if not manifest.exists():
            return None
        try:
            entry = json.loads(manifest.read_text(encoding="utf-8"))
            if entry["version"] != _MANIFEST_VERSION or entry["key"] != key:
                raise ValueError("it belongs to another version of the cache")
            if entry["digest"] != _digest(entry):
                raise ValueError("the manifest was changed")
            stored = from_plain(StepManifest, entry)
            found = {role: manifest.with_name(file.name) for role, file in stored.files.items()}
            for role, file in stored.files.items():
                path = found[role]
                if path.stat().st_size != file.size or files.sha256(path) != file.sha256:
                    raise ValueError(f"{path.name} does not match its hash")
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._warn(f"the cache entry {key[:12]} is corrupt ({error}); computing it again")
            return None
        cache.mark_used(manifest)
        return StoredStep(key, stored.result, found)

    def contains(self, key: str) -> bool:
        """Whether a manifest for `key` is there; its files are not verified."""
        return self._manifest(key).is_file()

    def _manifest(self, key: str) -> Path:
        return self.root / "steps" / key / _MANIFEST

    def checkpoints(self, key: str) -> Path:
        """Return the folder for the checkpoints of a step; hold its lock. It need not exist."""
        return self.root / "checkpoints" / key

    def alias_checkpoints(self, key: str, begun: str) -> None:
        """Let a step that began under another key go on under this one; hold the other's lock."""
        link = self.checkpoints(key)
        if key != begun and not link.exists():
            with contextlib.suppress(OSError):  # then a killed run begins anew
                link.unlink(missing_ok=True)
                link.symlink_to(begun, target_is_directory=True)

    @property
    def teachers(self) -> Path:
        """The folder of what teachers gave; a folder in it for each teacher and data set."""
        return self.root / "teachers"

    @property
    def sensitivities(self) -> Path:
        """The folder of what pruning groups of channels costs, a file per model and data set."""
        return self.root / "sensitivities"

    def remove_checkpoints(self, key: str) -> None:
        """Forget how far a step had come; hold its lock."""
        link = self.checkpoints(key)
        if link.is_symlink():
            shutil.rmtree(link.resolve(), ignore_errors=True)
        cache.remove_path(link)

    def add(self, key: str, result: StepResult, produced: Mapping[str, Path]) -> StoredStep:
        """Keep a step's files, then write its manifest.

        Args:
            key: the step's key.
            result: what came of it.
            produced: files by role, which nothing writes to any more.
        """
        manifest, found, described = self._manifest(key), dict[str, Path](), dict[str, StoredFile]()
        for role, path in produced.items():
            size, digest = path.stat().st_size, files.sha256(path)
            described[role] = StoredFile(sha256=digest, size=size, suffix=path.suffix)
            found[role] = manifest.with_name(described[role].name)
            # A damaged file is replaced. Others stay: a run may still read what was here before.
            if not (found[role].is_file() and files.sha256(found[role]) == digest):
                _link(path, found[role])
        entry = StepManifest(version=_MANIFEST_VERSION, key=key, files=described, result=result)
        signed = replace(entry, digest=_digest(to_plain(entry)))
        files.write_json(manifest, to_plain(signed))
        return StoredStep(key, result, found)

    def keep(self, file: Path) -> None:
        """Copy a file of a step, whose name is its hash, for runs that go on from the artifact.

        A link would have the times of the step's own file, which then would never look unused.
        """
        if not (target := self.root / "earlier-runs" / file.name).exists():
            with files.replacing(target) as temporary:
                shutil.copyfile(file, temporary)

    def kept(self, name: str) -> Path:
        """Return where `keep` has put a file, which counts as its use."""
        cache.mark_used(path := self.root / "earlier-runs" / name)
        return path

    def lock(
        self, name: str, waiting: Callable[[], None] | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Hold an exclusive lock, within `in_use`; other processes wait.

        Args:
            name: what is locked.
            waiting: called once if somebody else holds it.
        """
        return files.locked(self.root / "locks" / f"{name}.lock", waiting=waiting)

    def work_folder(self) -> contextlib.AbstractContextManager[Path]:
        """Hold an empty folder for a worker; it is removed afterwards, whatever happened."""
        return files.staging(self.root / "work")

    def sweep(self) -> None:
        """Remove what killed runs left behind, and what was not used for long.

        Whatever is still in use stays.
        """
        # Locks of folders are seen by this host alone, that of writers by every machine.
        with contextlib.suppress(OSError, ResourceError), self.alone():
            files.remove_leftovers(self.root / "work")
            for kind in cache.ENTRY_KINDS:
                for folder in (self.root / kind, *(self.root / kind).glob("*/")):
                    files.remove_leftovers(folder)
            for step in (self.root / "steps").iterdir():
                if not self.contains(step.name):
                    cache.remove_path(step)
            for checkpoints in (self.root / "checkpoints").iterdir():
                if not checkpoints.exists() or self.contains(checkpoints.name):
                    cache.remove_path(checkpoints)
            cache.sweep_daily(self.root)
            for lock in (self.root / "locks").iterdir():
                if lock.name != _WRITERS:
                    lock.unlink()

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Hold the lock that every run shares, alone; entering raises `BlockingIOError` if not."""
        how = fcntl.LOCK_EX | fcntl.LOCK_NB
        return files.locked(self.root / "locks" / _WRITERS, how)

    def in_use(self) -> contextlib.AbstractContextManager[None]:
        """Show other runs that this one may write, so that none removes what it uses."""
        return files.locked(self.root / "locks" / _WRITERS, fcntl.LOCK_SH)


def _link(source: Path, target: Path) -> None:
    """Give a file another name, or copy it where the file system has no links."""
    with files.replacing(target) as temporary:
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)


def _digest(entry: Mapping[str, Json]) -> str:
    body = {key: value for key, value in entry.items() if key != "digest"}
    return files.json_sha256(body)
