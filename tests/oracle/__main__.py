"""`python -m tests.oracle RUN_FOLDER TRUTH.npz`: compare a run's report with the oracle."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.oracle.audit import audit
from tests.oracle.records import summary
from tests.oracle.truth import Truth


def main(arguments: list[str]) -> int:
    """Print the summary; return 1 where a figure differs."""
    records = audit(Path(arguments[0]), Truth.load(Path(arguments[1])))
    sys.stdout.write(summary(records) + "\n")
    return int(any(not record.agrees for record in records))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
