"""Installed packages: their versions, and the entry points by which they extend shrink."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import itertools
import json
import shlex
import sys
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import shrink
from shrink.base.errors import RecipeError, ResourceError

DISTRIBUTION = "shrink-keras"
"""`shrink` belongs to another project on the package index; the command and import are ours."""


def extra_hint(extra: str) -> str:
    """Return the command that installs the packages of an extra, wherever shrink came from."""
    from packaging.requirements import Requirement

    found = [
        f"{needed.name}{needed.specifier}"
        for needed in map(Requirement, requirements())
        if needed.marker is not None
        and needed.marker.evaluate({"extra": extra})
        and not needed.marker.evaluate({"extra": ""})
    ]
    return f"python -m pip install {shlex.join(sorted(found) or [f'{DISTRIBUTION}[{extra}]'])}"


_IMPORTS = {"sklearn": "scikit-learn", "PIL": "pillow", "yaml": "pyyaml"}
"""Packages whose import has another name than the distribution."""


def missing_package(error: Exception) -> ResourceError | None:
    """Return the error to show where a package that shrink needs is not installed, else None."""
    if not isinstance(error, ModuleNotFoundError):  # PackageNotFoundError is one of these
        return None
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    module = (error.name or "").partition(".")[0]
    name = canonicalize_name(_IMPORTS.get(module, module))
    for needed in map(Requirement, requirements()):
        if canonicalize_name(needed.name) == name:
            lite = "this installation is for .tflite files and reports; " if lacks_keras() else ""
            return ResourceError(
                f"{lite}this command needs the package {name}, which is not installed",
                hint=full_installation()
                if name in KERAS_PACKAGES
                else f"python -m pip install {shlex.quote(f'{needed.name}{needed.specifier}')}",
            )
    return None


KERAS_PACKAGES = (
    *("tensorflow", "tf-keras", "keras", "tensorflow-model-optimization", "ai-edge-quantizer"),
    *("scipy", "scikit-learn", "h5py"),
)
"""What an installation for .tflite files and reports lacks: requirements-tflite.txt."""


def lacks_keras() -> bool:
    """Whether this is an installation for .tflite files and reports."""
    return versions()["tensorflow"] == "missing"


def check_keras() -> None:
    """Raise `ResourceError` where TensorFlow is not installed."""
    if lacks_keras() and (error := missing_package(ModuleNotFoundError(name="tensorflow"))):
        raise error


def full_installation() -> str:
    """Return the command that installs everything, from where shrink came if that is there."""
    try:
        record = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        record = None
    origin = json.loads(record or "{}")
    url = urllib.parse.urlsplit(origin.get("url", ""))
    path = urllib.parse.unquote(url.path)
    if url.scheme != "file" or not Path(path).exists():
        return "python -m pip install . (in a checkout of shrink)"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"python -m pip install {editable}{shlex.quote(path)}"


def requirements() -> list[str]:
    """Return what the installed distribution requires; nothing for a bare source tree."""
    try:
        return importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []


COMPUTING_PACKAGES = (
    # training, and Keras files of both kinds
    "tensorflow", "tf-keras", "keras", "tensorflow-model-optimization", "h5py",
    # conversion, quantization, what runs the artifacts and says what they take
    "ai-edge-quantizer", "ai-edge-litert", "tflite-micro", "ethos-u-vela",
    "flatbuffers", "ml-dtypes",
    # arithmetic
    "numpy", "scipy", "scikit-learn", "pycocotools",
    # what decodes examples
    "pillow", "lmdb", "pyarrow", "tifffile", "imagecodecs", "tensorflow-datasets", "array-record",
)  # fmt: skip
"""By their names on the package index; one that is not installed counts as `missing`."""


@functools.cache
def versions() -> dict[str, str]:
    """Return the version of shrink, of its sources in a checkout, and of what it computes with."""
    found = {"shrink": shrink.__version__}
    if (digest := _sources_digest()) is not None:
        found["shrink_sources"] = digest
    for package in COMPUTING_PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "missing"
    return found


def _sources_digest() -> str | None:
    """Return a hash of shrink's sources in a checkout, None where it is installed."""
    package = Path(shrink.__file__).parent
    return sources_digest(package) if (package.parent / "pyproject.toml").is_file() else None


def sources_digest(package: Path) -> str:
    """Return the SHA-256, in hex, of all Python files in a folder, by their names, or of one."""
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")) if package.is_dir() else [package]:
        digest.update(f"{file.relative_to(package)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Extension:
    """One thing that a package adds.

    Attributes:
        what: `stage` or `source`.
        point: its entry point.
    """

    what: str
    point: importlib.metadata.EntryPoint

    @property
    def package(self) -> str:
        """Name and version of the package."""
        found = self.point.dist
        return f"{found.name} {found.version}" if found else self.point.value

    def load(self) -> Any:
        """Import what the entry point names.

        Raises:
            RecipeError: that fails.
        """
        try:
            return self.point.load()
        except Exception as error:  # whatever a foreign module raises
            failed = self.error(f"fails: {type(error).__name__}: {error}")
            failed.hint = "update or remove the package"
            raise failed from error

    def error(self, why: str) -> RecipeError:
        """Return the error that names the package, and what it adds."""
        return RecipeError(f"{self.package} adds the {self.what} {self.point.name}, and {why}")

    def code(self) -> dict[str, str]:
        """Return the package with its version, and the hash of its sources.

        Raises:
            RecipeError: it cannot be imported.
        """
        self.load()
        names = itertools.accumulate(self.point.module.split("."), "{}.{}".format)
        # A namespace, which several packages share, has no file.
        name, file = next((n, Path(f)) for n in names if (f := _file(n)) is not None)
        alone = file.name != "__init__.py" and "." not in name
        return {"package": self.package, "sources": sources_digest(file if alone else file.parent)}


@functools.cache
def find_extension(what: str, name: str) -> Extension | None:
    """Return the stage or source that an installed package adds by this name; else None.

    To be asked only for names that shrink does not know: it reads a file of every package.
    """
    points = importlib.metadata.entry_points(group=f"shrink.{what}s", name=name)
    return next((Extension(what, point) for point in points), None)


def extension_names(what: str) -> list[str]:
    """Return the names of the stages or sources that installed packages add."""
    return sorted(point.name for point in importlib.metadata.entry_points(group=f"shrink.{what}s"))


def _file(module: str) -> str | None:
    return getattr(sys.modules[module], "__file__", None)
