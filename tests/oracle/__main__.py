"""`python -m tests.oracle RUN_FOLDER TRUTH.npz` compares one run's report with the oracle."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.oracle.audit import audit
from tests.oracle.records import summary
from tests.oracle.truth import Truth

if __name__ == "__main__":
    records = audit(Path(sys.argv[1]), Truth.load(Path(sys.argv[2])))
    sys.stdout.write(summary(records) + "\n")
    sys.exit(int(any(not record.agrees for record in records)))
