"""Names and versions of shrink and of every package that computes."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from pathlib import Path

import shrink

DISTRIBUTION = "shrink-keras"
"""`shrink` belongs to another project on the package index; the command and import are ours."""


def extra_hint(extra: str) -> str:
    """Return the command that installs what an optional feature needs."""
    return f"python -m pip install '{DISTRIBUTION}[{extra}]'"


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
    "ai-edge-quantizer", "ai-edge-litert", "tflite-micro", "flatbuffers", "ml-dtypes",
    # arithmetic
    "numpy", "scipy", "scikit-learn",
    # what decodes examples
    "pillow", "lmdb", "tifffile", "imagecodecs", "tensorflow-datasets", "array-record",
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
