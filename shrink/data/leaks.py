"""Examples that are in several parts of a data set, told by the hash of their content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def leak_notes(parts: Mapping[str, Sequence[str]], hashes: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each two parts that have pictures in common.

    Args:
        parts: files of train, validation and test.
        hashes: of each file's content.
    """
    digests = {
        part: {hashes[file]: file for file in reversed(files) if file in hashes}
        for part, files in parts.items()
    }
    notes = []
    for one, other in _PAIRS:
        common = digests[one].keys() & digests[other].keys()
        if common:
            count = sum(hashes.get(file) in common for file in parts[other])
            pair = min((digests[one][digest], digests[other][digest]) for digest in common)
            notes.append(
                f"{count} pictures of the {other} split are in the {one} split too, such as "
                f"{shown(pair[1])} = {shown(pair[0])}: its figures flatter"
            )
    return tuple(notes)
