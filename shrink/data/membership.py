"""Which examples are in which split, by their content: so that later runs test on none of them.

A file holds a line of JSON (`read_header`), then 8 bytes for every example: of train, validation
and test, in this order. Examples are told by the content of their file (images), by the bytes of
their record, or by the values of their inputs as stored; labels do not count where inputs do.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shrink.base.cache import entry_path, keep, key_of
from shrink.base.errors import DataError
from shrink.base.file_hashes import DIGEST_BYTES, hash_files
from shrink.base.packages import versions
from shrink.contract.result import SharedExamples
from shrink.data.config import NOT_OF_SPLITS, DataConfig
from shrink.data.examples import SPLIT_NAMES, Examples, reading_batch
from shrink.data.fingerprint import fingerprint
from shrink.data.folders import shown

_VERSION = 1
_BYTES = 8


@dataclass(frozen=True)
class Membership:
    """What is in each split.

    Attributes:
        identified_by: what examples are identified by; only the same can be compared.
        splits: uint64 (n,) for train, validation and test, in the order of their examples.
        file: returns the file of an example by its split and place, for messages.
    """

    identified_by: str
    splits: dict[str, np.ndarray]
    file: Callable[[str, int], str] | None = None

    def name(self, split: str, row: int) -> str:
        """Return what an example is called: its file, or its split and number."""
        return shown(self.file(split, row)) if self.file else f"{split} example {row}"

    def trained(self) -> np.ndarray:
        """Return those that training has seen, by its gradients or by its choices."""
        return np.concatenate([self.splits["train"], self.splits["validation"]])

    def kept(self, masks: dict[str, np.ndarray]) -> Membership:
        """Return what is left; a mask, bool (n,), for each split."""
        kept = {split: hashes[masks[split]] for split, hashes in self.splits.items()}
        return Membership(self.identified_by, kept)

    def content(self) -> bytes:
        """Return all of it as the content of a file."""
        counts = {split: len(hashes) for split, hashes in self.splits.items()}
        header = {"version": _VERSION, "told_by": self.identified_by, "counts": counts}
        body = b"".join(np.asarray(self.splits[split], "<u8").tobytes() for split in SPLIT_NAMES)
        return json.dumps(header).encode() + b"\n" + body


def read_membership(path: Path) -> Membership:
    """Return what a file says.

    Raises:
        DataError: it is missing or damaged.
    """
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        header = json.loads(head)
        counts = [int(header["counts"][split]) for split in SPLIT_NAMES]
        if header["version"] != _VERSION or len(body) != _BYTES * sum(counts):
            raise ValueError("it is cut short, or of another version")
        hashes = np.split(np.frombuffer(body, "<u8"), np.cumsum(counts)[:-1])
        return Membership(str(header["told_by"]), dict(zip(SPLIT_NAMES, hashes, strict=True)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"what an earlier run trained on cannot be read: {error}",
            subject=path,
            hint="run the recipe that made the model again",
        ) from error


def membership_of(splits: dict[str, Examples], config: DataConfig, seed: int) -> Membership:
    """Return what is in each split, from the cache folder after the first time.

    Args:
        splits: train, validation and test as the source gives them.
        config: the `data` section.
        seed: of the splits.

    Raises:
        DataError: an example cannot be read.
    """
    decided_by = config.model_dump_json(exclude=NOT_OF_SPLITS)
    key = key_of(fingerprint(config), decided_by, str(seed), json.dumps(versions()))
    memory = entry_path("splits", key, ".bin")
    with contextlib.suppress(DataError):
        return read_membership(memory)
    hashes = {split: _hashes(examples) for split, examples in splits.items()}
    membership = Membership(splits["train"].identified_by, hashes)
    keep(memory, membership.content())
    return membership


def _hashes(examples: Examples) -> np.ndarray:
    hashes = np.empty(len(examples), np.uint64)
    step = reading_batch(examples.input_spec, examples.target_spec)
    for start in range(0, len(examples), step):
        indices = np.arange(start, min(start + step, len(examples)))
        hashes[indices] = [content_hash(content) for content in examples.contents(indices)]
    return hashes


def content_hash(content: bytes) -> int:
    """Return what stands for the content of an example: 8 bytes of its BLAKE2b."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=_BYTES).digest(), "little")


_PAIRS = (("train", "test"), ("validation", "test"), ("train", "validation"))


def duplicates(hashes: Mapping[str, str]) -> list[list[str]]:
    """Return groups of files with the same content, each sorted, the largest groups first.

    Args:
        hashes: of each file's content.
    """
    groups: dict[str, list[str]] = {}
    for file, digest in hashes.items():
        groups.setdefault(digest, []).append(file)
    repeated = [sorted(group) for group in groups.values() if len(group) > 1]
    return sorted(repeated, key=lambda group: (-len(group), group))


def shared_examples(membership: Membership) -> list[SharedExamples]:
    """Return which splits have examples in common, the gravest first; they are not left out yet."""
    shared = []
    for trained, tested in _PAIRS:
        own, other = membership.splits[tested], membership.splits[trained]
        copies = np.isin(own, other)
        if copies.any():
            row = int(np.argmax(copies))
            twin = int(np.argmax(other == own[row]))
            example = f"{membership.name(tested, row)} = {membership.name(trained, twin)}"
            count = int(copies.sum())
            shared.append(
                SharedExamples(
                    split=tested, other=trained, count=count, total=len(own), example=example
                )
            )
    return shared


def without_shared(membership: Membership) -> dict[str, np.ndarray]:
    """Return which examples stay, bool (n,) by split, where none is also in an earlier split.

    Raises:
        DataError: nothing is left to test on.
    """
    masks = {split: np.ones(len(own), bool) for split, own in membership.splits.items()}
    for trained, tested in _PAIRS:
        masks[tested] &= ~np.isin(membership.splits[tested], membership.splits[trained])
    if len(masks["test"]) and not masks["test"].any():
        raise DataError(
            f"all {len(masks['test']):,} test examples are also training examples, and "
            "data.overlap: leave_out leaves none",
            subject="data",
            hint="give a test split of other examples",
        )
    return masks


def file_contents(root: Path, names: Sequence[str], owner: Path) -> np.ndarray:
    """Return what stands for the content of each file, uint64 (n,), see `short_hashes`.

    Args:
        root: the folder that names are relative to, where they are not absolute.
        names: of the files; one may be there twice.
        owner: what they belong to, see `hash_files`.
    """
    unique = list(dict.fromkeys(names))
    contents = short_hashes(hash_files(root, unique, owner))
    if len(unique) == len(names):
        return contents
    number = {name: index for index, name in enumerate(unique)}
    return contents[[number[name] for name in names]]


def short_hashes(digests: bytes) -> np.ndarray:
    """Return 8 bytes of each SHA-256, uint64 (n,)."""
    return np.frombuffer(digests, np.uint64)[:: DIGEST_BYTES // 8]
