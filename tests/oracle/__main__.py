"""`python -m tests.oracle`: compare reports with the oracle and count the figures.

`RUN_FOLDER TRUTH.npz` compares one run; `zoo FOLDER [NAME ...]` makes, runs and compares every
entry of the zoo whose name contains one of the names, without any all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.oracle import zoo
from tests.oracle.audit import audit
from tests.oracle.drive import Fork
from tests.oracle.records import Record, summary
from tests.oracle.truth import Truth


def main(arguments: list[str]) -> int:
    """Print the summary; return 1 where a figure differs."""
    if arguments[0] == "zoo":
        records = _zoo(Path(arguments[1]), arguments[2:])
    else:
        records = audit(Path(arguments[0]), Truth.load(Path(arguments[1])))
    sys.stdout.write(summary(records) + "\n")
    return int(any(not record.agrees for record in records))


def _zoo(folder: Path, names: list[str]) -> list[Record]:
    records: list[Record] = []
    store = folder / "store"
    store.mkdir(parents=True)
    fork = Fork(store)
    for row in [*zoo.sample(), *zoo.rows()]:
        name = zoo.name_of(row)
        if names and not any(part in name for part in names):
            continue
        made = zoo.make(row, folder / name)
        done = fork.run(made.arguments, folder / name)
        if done.code in (0, 1):
            found = audit(folder / name / "out", made.truth, name)
        else:
            found = [Record(name, "exit code", done.code, (0, 1), False, done.printed)]
        sys.stdout.write(f"{name}: {summary(found)}\n")
        sys.stdout.flush()
        records += found
    return records


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
