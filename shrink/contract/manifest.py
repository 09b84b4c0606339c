"""What the store says of a finished step, in the one file that makes it finished."""

from __future__ import annotations

from collections.abc import Mapping

from shrink.contract.codec import left_out
from shrink.contract.record import record
from shrink.contract.result import StepResult


@record
class StoredFile:
    """A file by its content; `size` in bytes."""

    sha256: str
    size: int
    suffix: str


@record
class StepManifest:
    """A finished step.

    Attributes:
        version: of this layout.
        key: of the step.
        files: by role.
        result: what came of it.
        digest: SHA-256 of all other fields.
    """

    version: int
    key: str
    files: Mapping[str, StoredFile]
    result: StepResult
    digest: str = left_out("")
