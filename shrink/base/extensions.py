"""What other installed packages add to shrink, by entry points of the groups `shrink.<what>s`."""

from __future__ import annotations

import functools
import importlib.metadata
import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shrink.base.errors import RecipeError
from shrink.base.versions import sources_digest


@dataclass(frozen=True)
class Extension:
    """One thing that a package adds.

    Attributes:
        what: `stage` or `source`.
        point: its entry point.
    """

    what: str
    point: importlib.metadata.EntryPoint

    @property
    def package(self) -> str:
        """Name and version of the package."""
        found = self.point.dist
        return f"{found.name} {found.version}" if found else self.point.value

    def load(self) -> Any:
        """Import what the entry point names.

        Raises:
            RecipeError: that fails.
        """
        try:
            return self.point.load()
        except Exception as error:  # whatever a foreign module raises
            failed = self.error(f"fails: {type(error).__name__}: {error}")
            failed.hint = "update or remove the package"
            raise failed from error

    def error(self, why: str) -> RecipeError:
        """Return the error that names the package, and what it adds."""
        return RecipeError(f"{self.package} adds the {self.what} {self.point.name}, and {why}")

    def code(self) -> dict[str, str]:
        """Return the package with its version, and the hash of its sources.

        Raises:
            RecipeError: it cannot be imported.
        """
        self.load()
        names = itertools.accumulate(self.point.module.split("."), "{}.{}".format)
        # A namespace, which several packages share, has no file.
        name, file = next((n, Path(f)) for n in names if (f := _file(n)) is not None)
        alone = file.name != "__init__.py" and "." not in name
        return {"package": self.package, "sources": sources_digest(file if alone else file.parent)}


@functools.cache
def find_extension(what: str, name: str) -> Extension | None:
    """Return the stage or source that an installed package adds by this name; else None.

    To be asked only for names that shrink does not know: it reads a file of every package.
    """
    points = importlib.metadata.entry_points(group=f"shrink.{what}s", name=name)
    return next((Extension(what, point) for point in points), None)


def _file(module: str) -> str | None:
    return getattr(sys.modules[module], "__file__", None)
