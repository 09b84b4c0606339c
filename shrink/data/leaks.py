"""Examples that are in several parts of a data set, told by the hash of their content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from shrink.data.fingerprint import DIGEST_BYTES
from shrink.data.folders import shown

_PAIRS = (("train", "test"), ("train", "validation"), ("validation", "test"))


def duplicates(hashes: Mapping[str, str]) -> list[list[str]]:
    """Return groups of files with the same content, each sorted, the largest groups first.

    Args:
        hashes: of each file's content.
    """
    groups: dict[str, list[str]] = {}
    for file, digest in hashes.items():
        groups.setdefault(digest, []).append(file)
    found = [sorted(group) for group in groups.values() if len(group) > 1]
    return sorted(found, key=lambda group: (-len(group), group))


def leak_notes(
    parts: Mapping[str, Sequence[str]], contents: Mapping[str, np.ndarray]
) -> tuple[str, ...]:
    """Return a sentence for each two parts that have pictures in common.

    Args:
        parts: files of train, validation and test.
        contents: what stands for the content of each of them, from `contents_of`.
    """
    notes = []
    for one, other in _PAIRS:
        shared = np.isin(contents[other], contents[one])
        if shared.any():
            row = int(np.argmax(np.isin(contents[one], contents[other])))
            twin = int(np.argmax(contents[other] == contents[one][row]))
            notes.append(
                f"{int(shared.sum())} pictures of the {other} split are in the {one} split too, "
                f"such as {shown(parts[other][twin])} = {shown(parts[one][row])}: its figures "
                "flatter"
            )
    return tuple(notes)


def contents_of(
    parts: Mapping[str, Sequence[str]], paths: Iterable[str], digests: bytes
) -> dict[str, np.ndarray]:
    """Return what stands for the content of each file of a part, uint64 (n,).

    Args:
        parts: files by part.
        paths: of files whose content is known, all of `parts` among them.
        digests: SHA-256 of each file's content, 32 bytes each, of which 8 are taken.

    Files are matched by 64 bits of their path: a mapping by path would take more than the paths.
    """
    known = np.frombuffer(digests, np.uint64)[:: DIGEST_BYTES // 8]
    keys = np.fromiter(map(hash, paths), np.int64, len(known))
    order = np.argsort(keys)
    found = {}
    for part, files in parts.items():
        wanted = np.fromiter(map(hash, files), np.int64, len(files))
        found[part] = known[order[np.searchsorted(keys, wanted, sorter=order)]]
    return found
