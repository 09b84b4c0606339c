"""Tracks what user code reads: files, listed folders, modules and environment variables.

The process that runs the code records it by Python's audit hook, by `os.environ` and by h5py, for
each of the user's files on the stack. A record is kept by the content of that file, and
`code_digest` hashes what it names as that is now. Before code has run for the first time only its
own content is known: results are stored under the key that is known afterwards.

Other reads by C or C++ (`tf.data`, databases), tests such as `Path.exists`, and the network are
not seen: `depends` names what they read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import FrameType, ModuleType

import shrink
from shrink.base import files
from shrink.base.cache import cache_root, entry_path
from shrink.base.errors import DataError, ModelError, ResourceError
from shrink.base.file_hashes import DIGEST_BYTES, files_under, hash_files

_WRITING = os.O_WRONLY | os.O_RDWR
_NEVER = ("/proc/", "/dev/", "/sys/")
_LIBRARIES = ("site-packages", "dist-packages")
_IMPORTING = "<frozen importlib"
_GENERATED = "__autograph_generated_file"
"""Modules that TensorFlow writes under random names while it traces."""
_OPENING, _LISTING = ("open", "sqlite3.connect"), ("os.listdir", "os.scandir")
_HINT = "depends names files and folders, and environment variables as $NAME"


def code_digest(entry: Path) -> str:
    """Return the SHA-256, in hex, of a Python file and of what it is known to read.

    Where the file is does not count: what it reads beside itself is looked up beside it.

    Raises:
        ModelError: the file cannot be read.
    """
    RECORDER.save()
    own = os.path.realpath(entry)
    if not os.access(own, os.R_OK):
        raise ModelError("cannot be read", subject=entry)
    content = _contents([own], entry)[own]
    lines, read, waiting = {f"\0{content}"}, {own}, [(own, content)]
    while waiting:
        code, digest = waiting.pop()
        known, found = _recorded(digest), set()
        for name in known:
            if name.startswith("$"):
                lines.add(f"{name}\0{os.environ.get(name[1:])!r}")
                continue
            start = Path.cwd() if name.startswith("./") else Path(code).parent
            path = os.path.realpath(start / name)
            if name.endswith("/"):
                lines.add(f"{_label(path, own)}/\0{_folder_digest(path)}")
            elif path not in read:
                found.add(path)
        there = sorted(p for p in found if Path(p).is_file() and os.access(p, os.R_OK))
        digests = _contents(there, Path(code))
        lines |= {f"{_label(path, own)}\0{digest}" for path, digest in digests.items()}
        lines |= {f"{_label(path, own)}\0missing" for path in found.difference(there)}
        waiting += [pair for pair in digests.items() if pair[0].endswith(".py")]
        read |= found
    return hashlib.sha256(files.encoded("\n".join(sorted(lines)))).hexdigest()


def declared_digests(folder: Path, names: Sequence[str]) -> list[str]:
    """Return what decides the content of each name of a `depends`.

    Args:
        folder: that names of files and folders are relative to.
        names: files, folders with all that is in them, or environment variables as `$NAME`.

    Raises:
        DataError: nothing is there, or it cannot be read.
    """
    labels = [f"{n}\0{os.environ.get(n[1:])!r}" for n in names if n.startswith("$")]
    for name in (n for n in names if not n.startswith("$")):
        path = folder / Path(name).expanduser()
        if not path.exists():
            raise DataError("no such file or folder", subject=path, hint=_HINT)
        paths = [str(file) for file in (files_under(path) if path.is_dir() else [path])]
        for file, digest in _contents(paths, path).items():
            labels.append(f"{path.name}/{os.path.relpath(file, path)}\0{digest}")
    return labels


_HELD: ContextVar[dict[str, str] | None] = ContextVar("_HELD", default=None)


@contextlib.contextmanager
def holding_contents() -> Iterator[None]:
    """Take what files hold when it is first asked for in the block as what they hold to its end.

    A result belongs to the code that was there before it was computed, not to a later edit.
    """
    token = _HELD.set({})
    try:
        yield
    finally:
        _HELD.reset(token)


def changed_contents() -> list[str]:
    """Return the files that hold something else than when `holding_contents` first saw them."""
    held = _HELD.get() or {}
    there = sorted(path for path in held if Path(path).is_file())
    now = dict(zip(there, _hashed(there, Path("/")), strict=True))
    return [path for path, digest in held.items() if now.get(path) != digest]


def _contents(paths: Sequence[str], owner: Path) -> dict[str, str]:
    """Return the SHA-256 of each file, in hex."""
    held = _HELD.get()
    known = {} if held is None else held
    unknown = [path for path in paths if path not in known]
    found = dict(zip(unknown, _hashed(unknown, owner), strict=True))
    known |= found
    return {path: known[path] for path in paths}


def _hashed(paths: Sequence[str], owner: Path) -> list[str]:
    digests = hash_files(Path("/"), paths, owner) if paths else b""
    return [digests[DIGEST_BYTES * row :][:DIGEST_BYTES].hex() for row in range(len(paths))]


def _label(path: str, own: str) -> str:
    """Return a name that does not depend on where a project is."""
    folder = Path(own).parent
    inside = Path(path).is_relative_to(folder)
    return os.path.relpath(path, folder) if inside else "/".join(Path(path).parts[-2:])


def _folder_digest(folder: str) -> str:
    """Return a hash of the names in a folder, those that begin with a dot left out."""
    try:
        listed = [path.name for path in Path(folder).iterdir()]
        names = sorted(n for n in listed if not n.startswith(".") and n != "__pycache__")
    except OSError:
        names = ["", "missing"]
    return hashlib.sha256(os.fsencode("\0".join(names))).hexdigest()


def users_file(module: ModuleType | None) -> Path | None:
    """Return the file of a module, None where it is a library's, shrink's or Python's own."""
    text = getattr(module, "__file__", None)
    if not isinstance(text, str):
        return None
    path = Path(os.path.realpath(text))
    return path if is_users(path) and path.is_file() else None


def is_users(path: Path) -> bool:
    """Whether a path is outside of Python, of installed packages and of shrink itself."""
    return not any(name in path.parts for name in _LIBRARIES) and not any(
        path.is_relative_to(folder) for folder in _not_users()
    )


@functools.cache
def _not_users() -> tuple[str, ...]:
    own = sysconfig.get_paths()
    return (os.path.realpath(Path(shrink.__file__).parent), own["stdlib"], own["platstdlib"])


_Code = tuple[str, str]
"""A user's Python file: its real path, and the SHA-256 of the content that runs."""


class _Recorder:
    """Records what the user's files read in this process; it starts with the first of them.

    There is one in a process, for an audit hook cannot be taken off again.
    """

    def __init__(self) -> None:
        self._started = False
        self._hashing: int | None = None
        """The thread in which this recorder itself reads."""
        self._running: list[_Code] = []
        self._codes: dict[str, _Code | None] = {}
        self._new: set[tuple[_Code, str, bool]] = set()
        """Who read what, and whether it was there; several threads add to it, each in one step."""

    @contextlib.contextmanager
    def running(self, entry: Path, module: ModuleType | None = None) -> Iterator[None]:
        """Count all that is read in the block as read by `entry`, a user's Python file.

        Args:
            entry: the file.
            module: what it became, where it has been imported: what it refers to counts too,
                though another file may have imported that first.
        """
        self._start()
        if module is None:
            self._codes.clear()  # files may have changed since they were imported
        own = self._code(str(entry))
        self._running += [own] if own is not None else []
        try:
            yield
        finally:
            if own is not None:
                self._running.remove(own)
                modules = _referred_to(module or sys.modules.get(module_name(entry)))
                self._new.update([(own, str(path), False) for path in modules])
            if not self._running:
                self.save()

    def save(self) -> None:
        """Add what is new to the records."""
        found = list(self._new)  # in one step: other threads go on adding
        for code, digest in {owner for owner, _, _ in found}:
            # What was there when it was read and is gone was temporary.
            names = {
                name
                for owner, name, was_there in found
                if owner == (code, digest) and (not was_there or Path(_path(name)).exists())
            }
            folder = str(Path(code).parent)
            new = {_relative(name, folder) for name in names if _path(name) != code}
            if any(name.startswith("../") and name.endswith(".py") for name in new):
                new.add("$PYTHONPATH")
            if new := new - _recorded(digest):
                lines = "".join(f"{json.dumps(name)}\n" for name in sorted(new))
                with contextlib.suppress(OSError, ResourceError):
                    path = _record(digest)
                    files.make_folder(path.parent)
                    with files.open_to_append(path) as stream:
                        stream.write(lines.encode("ascii"))
        self._new.difference_update(found)

    def __call__(self, event: str, arguments: Sequence[object]) -> None:
        """Hear of an event of Python's."""
        if event in _OPENING and self._hashing != threading.get_ident():
            if not _writes(*arguments[1:3]):
                self.read(arguments[0])
        elif event in _LISTING:
            self.read(arguments[0] if arguments[0] is not None else ".", "/")

    def read(self, value: object, end: str = "") -> None:
        """Record a file, or with `end` a folder, for the user's files that are on the stack."""
        if not isinstance(value, str | bytes | os.PathLike):
            return  # a descriptor
        frame = sys._getframe(2)
        importing = frame.f_code.co_filename.startswith(_IMPORTING)
        text = os.fsdecode(value)
        if "\0" in text or (importing and end) or not (owners := self._owners(frame)):
            return
        path = os.path.realpath(text)
        if path.endswith(".pyc"):
            if not importing:
                return
            with contextlib.suppress(ValueError):
                path = importlib.util.source_from_cache(path)
        cache = os.path.realpath(cache_root())
        if path.startswith((*_NEVER, f"{cache}/")) or not _is_from_user(path):
            return
        name = f"{'' if text.startswith('/') else './'}{path}{end}"
        was_there = Path(path).exists()
        for owner in owners:
            self._new.add((owner, name, was_there))

    def variable(self, key: str | bytes) -> None:
        """Record an environment variable that a user's file reads, not one that a library does."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith("<frozen "):
            if frame.f_code.co_name == "copy":  # for a process to come
                return
            frame = frame.f_back
        if frame is not None and self._code(frame.f_code.co_filename) is not None:
            for owner in self._owners(frame):
                self._new.add((owner, f"${os.fsdecode(key)}", False))

    def _owners(self, frame: FrameType | None) -> set[_Code]:
        owners = set(self._running)
        while frame is not None:
            if (code := self._code(frame.f_code.co_filename)) is not None:
                owners.add(code)
            frame = frame.f_back
        return owners

    def _code(self, name: str) -> _Code | None:
        if name not in self._codes:
            path, self._codes[name] = os.path.realpath(name), None
            if path.endswith(".py") and _is_from_user(path):
                self._hashing = threading.get_ident()
                with contextlib.suppress(OSError):
                    self._codes[name] = (path, hashlib.sha256(Path(path).read_bytes()).hexdigest())
                self._hashing = None
        return self._codes[name]

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        sys.addaudithook(self)
        environ = type(os.environ)
        getitem = environ.__getitem__

        def recorded(variables: os._Environ[str], key: str) -> str:
            self.variable(key)
            return getitem(variables, key)

        environ.__getitem__ = recorded  # type: ignore[method-assign]
        with contextlib.suppress(ImportError):
            from h5py import h5f

            opened = h5f.open

            def recorded_open(name: bytes, *arguments: object, **keywords: object) -> object:
                self.read(name)
                return opened(name, *arguments, **keywords)

            h5f.open = recorded_open


RECORDER = _Recorder()


def module_name(path: Path) -> str:
    """Return the name by which a user's Python file is imported."""
    return f"shrink_user_{path.stem}"


def _is_from_user(path: str) -> bool:
    return _GENERATED not in path and is_users(Path(path))


def _path(name: str) -> str:
    return name.removeprefix("./")


def _relative(name: str, folder: str) -> str:
    """Return a name relative to the code's folder, or with `./` to the working directory."""
    if name.startswith("$"):
        return name
    end = "/" if name.endswith("/") else ""
    if name.startswith("./"):
        return f"./{os.path.relpath(_path(name))}{end}"
    return os.path.relpath(name, folder) + end


def _record(content: str) -> Path:
    return entry_path("user-code", content, ".jsonl")


def _recorded(content: str) -> set[str]:
    """Return the names that a file of this content is known to read."""
    try:
        lines = _record(content).read_text("utf-8", "replace").splitlines()
    except OSError:
        return set()
    names = set()
    for line in lines:
        try:
            names.add(str(json.loads(line)))
        except ValueError:
            names.add("damaged")  # another key than before
    return names


def _referred_to(module: ModuleType | None) -> set[Path]:
    """Return the files of the user's modules that a module refers to, or one of these does."""
    found: set[Path] = set()
    waiting = [] if module is None else [module]
    while waiting:
        for value in list(vars(waiting.pop()).values()):
            is_module = isinstance(value, ModuleType)
            name = value.__name__ if is_module else getattr(value, "__module__", None)
            other = sys.modules.get(name) if isinstance(name, str) else None
            path = users_file(other)
            if other is not None and path is not None and path not in found:
                found.add(path)
                waiting.append(other)
    return found


def _writes(mode: object = None, flags: object = 0) -> bool:
    by_mode = isinstance(mode, str) and any(letter in mode for letter in "wax+")
    return by_mode or (isinstance(flags, int) and bool(flags & _WRITING))
