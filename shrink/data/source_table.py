"""Table of examples, and its division into splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError
from shrink.base.file_hashes import place
from shrink.data.arrays import REAL_HINT, ArrayExamples, Rows, Several, are_labels
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.examples import Examples
from shrink.data.folders import ALL
from shrink.data.membership import Membership, file_contents
from shrink.data.slices import slice_values
from shrink.data.splits import divided_rows, tested_split


@dataclass(frozen=True)
class SourceTable:
    """A row for each example; inputs and targets are read when they are asked for.

    Attributes:
        path: of the data, for messages.
        splits: rows of each split that the source gives, int64 (n,), or of `all`.
        y: targets of all rows; labels, int64 (rows,), decide how a split is stratified.
        x: inputs of all rows.
        class_names: by label; empty where targets are real.
        notes: for the report.
        names: of the files of the rows; empty where rows are of no files.
        root: the folder that names are relative to, where they are not absolute.
        columns: a text or a number for each row by name, which `data.slices` may name.
        contents: what identifies each row, uint64 (rows,), or returns the bytes that identify some
            rows; by default that of its file, else the values of its inputs.
        identified_by: the kind of `contents`: file, text, window or record.
    """

    path: Path
    splits: Mapping[str, np.ndarray]
    y: Several[Rows]
    x: Several[Rows] = ()
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    names: Sequence[str] = ()
    root: Path = Path()
    columns: Mapping[str, Sequence[str] | np.ndarray] = field(default_factory=dict)
    contents: np.ndarray | Callable[[np.ndarray], Sequence[bytes]] | None = None
    identified_by: str = "file"

    def file(self, row: int) -> str:
        """Return the absolute path of a row's file."""
        return place(self.root, self.names[row])

    def files(self, split: str | None = None) -> list[str]:
        """Return the files of a split; by default of the one that decides shapes."""
        main = next(name for name in (ALL, "train", *self.splits) if name in self.splits)
        return [self.file(row) for row in self.splits[split or main].tolist()]

    def examples(self, rows: np.ndarray) -> Examples:
        """Return some rows as examples."""
        read = (self.identified_by, self.contents) if callable(self.contents) else None
        return ArrayExamples(self.x, self.y, rows, read)

    def open(self, config: DataConfig, seed: int) -> Dataset:
        """Return the data set; the seed decides the splits that the source does not give.

        Raises:
            DataError: too few rows for the splits, no split train, or a label that training lacks.
        """
        rows = divided_rows(self.splits, self.y, seed, config, self.path)
        given, notes = frozenset(self.splits) - {ALL, "train"}, self.notes
        if config.test_split == 1 and "test" not in given:
            tested = tested_split(self.splits)
            named = "all examples" if tested == ALL else f"the split {tested}"
            notes = (*notes, f"tested on {named}, as there is no test split")
            given = given if tested in (ALL, "train") else given | {"test"}
        trains = config.test_split < 1 and "train" in self.splits
        if config.target == "label" and are_labels(self.y) and trains:
            for split in sorted(self.splits.keys() - {ALL, "train"}):
                self._check_labels(split, self.y[self.splits[split]], self.y[self.splits["train"]])
        contents = self.contents
        if contents is None and self.names:
            contents = file_contents(self.root, self.names, self.path)
        values = slice_values(
            config.slices or (),
            self.path,
            self.columns,
            lambda: map(self.file, range(len(self.names))),
            self.root,
        )
        known = None
        if isinstance(contents, np.ndarray):
            known = Membership(
                self.identified_by,
                {split: contents[own] for split, own in rows.items()},
                (lambda split, at: self.file(int(rows[split][at])))
                if self.identified_by == "file"
                else None,
            )
        return Dataset(
            self.examples(rows["train"]),
            self.examples(rows["validation"]),
            self.examples(rows["test"]),
            class_names=self.class_names,
            num_classes=len(self.class_names) or None,
            notes=notes,
            given=given,
            known_membership=known,
            slice_values={
                split: {by: one[own] for by, one in values.items()} for split, own in rows.items()
            },
        )

    def _check_labels(self, split: str, labels: np.ndarray, trained: np.ndarray) -> None:
        """Raise `DataError` for a label that training lacks, of texts or of numbered classes.

        Numbers with a gap may be anything, such as ages to be predicted.
        """
        unseen = np.flatnonzero(~np.isin(labels, trained))
        if not unseen.size:
            return
        label, highest = int(labels[unseen[0]]), int(trained.max())
        if self.identified_by == "text":
            message = f"no training text has the label {self.class_names[label]!r}"
            raise DataError(message, subject=self.path, hint="add some, or remove it")
        if all(map(str.isdecimal, self.class_names)) and len(np.unique(trained)) == highest + 1:
            raise DataError(
                f"y_{split}[{unseen[0]}] is {label}, out of range: the training labels are 0 to "
                f"{highest}",
                subject=self.path,
                hint=REAL_HINT,
            )
