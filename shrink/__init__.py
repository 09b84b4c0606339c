"""Prune, distill and quantize Keras models to TFLite, and report what every step cost.

`shrink.prune`, `distill`, `quantize` and the others are the verbs of the command line: see
docs/python.md. Nothing is imported before it is used; `__init__.pyi` says what the names are.
"""

import sys
from collections.abc import Callable
from types import ModuleType

__version__ = "0.1.0"

_VERBS = ("train", "prune", "distill", "cluster", "quantize", "compact", "evaluate")
_OTHERS = ("run", "sweep", "compare", "search", "profile", "load_run")
_RESULTS = ("Run", "RunStage", "Comparison", "SearchResult")
_ERRORS = (
    *("ShrinkError", "RecipeError", "InputError", "ModelError", "DataError"),
    *("StageError", "ConversionError", "ResourceError", "InternalError"),
)
_PLACES = {
    **dict.fromkeys((*_VERBS, *_OTHERS, *_RESULTS, "API_VERSION"), "shrink.api"),
    **dict.fromkeys(_ERRORS, "shrink.base.errors"),
}
_ROOMS = ("run", "compact", "search")
"""Functions that a folder of the package has the name of, too."""
__all__ = ["__version__", *_PLACES]


class _CallableRoom(ModuleType):
    """A folder that is called as the function of its name."""

    def __call__(self, *arguments: object, **keys: object) -> object:
        return _function(self)(*arguments, **keys)

    def __getattr__(self, name: str) -> object:
        if name != "__signature__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        import inspect

        return inspect.signature(_function(self))


class _Package(ModuleType):
    """Makes such a folder callable as soon as Python binds its name to it."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _ROOMS and isinstance(value, ModuleType):
            value.__class__ = _CallableRoom
        super().__setattr__(name, value)


def _function(room: ModuleType) -> Callable[..., object]:
    from importlib import import_module

    function: Callable[..., object] = getattr(
        import_module("shrink.api"), room.__name__.removeprefix("shrink.")
    )
    return function


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    if name in _ROOMS:
        return importlib.import_module(f"shrink.{name}")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
