"""What is wrong with data by its names and sizes alone, told before TensorFlow starts; light."""

from __future__ import annotations

from pathlib import Path

from shrink.base.errors import DataError
from shrink.data.array_names import layout, wanted_targets
from shrink.data.config import DataConfig
from shrink.data.npz_headers import array_names, row_counts
from shrink.data.shards import described
from shrink.data.table import feature_columns, read_header, read_table

_MOST_BYTES_OF_A_TABLE = 4_000_000
"""A table up to this size is read as a whole, which takes a fraction of a second."""


def check_early(config: DataConfig) -> None:
    """Raise what the source would say later, as far as it can be known at once.

    Of npz that an array is missing, or that inputs and targets have different numbers of rows; of
    csv that a column is, and of a small table that a row has too many or too few cells; of tfrecord
    and lmdb that a feature is not declared.

    Raises:
        DataError: as the source itself would raise it.
    """
    path = Path(config.path or "").expanduser()
    if config.source == "npz":
        _check_arrays(path, config)
    elif config.source == "csv":
        small = path.is_file() and path.stat().st_size <= _MOST_BYTES_OF_A_TABLE
        feature_columns(path, read_table(path).cells if small else read_header(path), config)
    elif config.source in ("tfrecord", "lmdb"):
        described(path, config)


def _check_arrays(path: Path, config: DataConfig) -> None:
    names, inputs = array_names(path), config.inputs or ("x",)
    suffixes = layout(path, names, inputs)
    targets = config.targets or ("y",)
    wanted = wanted_targets(path, names, suffixes, inputs, targets, config.target == "label")
    for suffix in suffixes.values():
        counts = row_counts(path, [f"{name}{suffix}" for name in (*inputs, *wanted)])
        if len(set(counts.values())) > 1:
            told = (f"{name} has {count}" for name, count in counts.items())
            raise DataError(
                f"arrays of different numbers of examples: {', '.join(told)}",
                subject=path,
                hint="each array needs one row for each example",
            )
