"""Where a study is kept: a journal file, or a database that its URL names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shrink.base.errors import ResourceError
from shrink.base.packages import DISTRIBUTION

if TYPE_CHECKING:
    import optuna


def open_storage(place: str) -> optuna.storages.BaseStorage:
    """Return a storage: a database by its URL, else a journal file.

    Raises:
        ResourceError: Optuna is missing, or the database cannot be opened.
    """
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise ResourceError(
            "Optuna cannot be imported",
            subject="shrink search",
            hint=f"python -m pip install --upgrade {DISTRIBUTION}",
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        if "://" in place:
            return optuna.storages.RDBStorage(place)
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        return optuna.storages.JournalStorage(JournalFileBackend(place))
    except Exception as error:
        raise ResourceError(
            f"the storage cannot be opened: {error}",
            subject=place,
            hint="give a file on a shared disk, or the URL of a database",
        ) from error
