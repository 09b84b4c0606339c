"""What Python code may rely on: names, parameters, attributes; see `API_VERSION`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import shrink
from docs.stubs import stub
from shrink import api
from shrink.api import results
from shrink.base.errors import ShrinkError
from shrink.contract.comparison import Comparison

ROOT = Path(__file__).parents[2]
VERBS = ("train", "prune", "cluster", "quantize", "compact", "evaluate")
PARAMETERS = {
    **dict.fromkeys(VERBS, ("model", "data", "**keys")),
    "distill": ("teacher", "student", "data", "**keys"),
    "run": ("recipe", "**keys"),
    "sweep": ("recipe", "**keys"),
    "search": ("model", "data", "**keys"),
    "compare": ("*runs", "output"),
    "profile": ("model", "batch_size", "**keys"),
    "load_run": ("folder",),
}
ERRORS = {
    "ShrinkError": 70,
    "RecipeError": 2,
    "InputError": 3,
    "ModelError": 3,
    "DataError": 3,
    "StageError": 4,
    "ConversionError": 4,
    "ResourceError": 5,
    "InternalError": 70,
}
ATTRIBUTES = {
    "Run": {
        *("folder", "report", "exit_code", "load", "name", "passed", "gates", "warnings", "stages"),
        *("stage", "artifact", "figures", "to_pandas", "show"),
    },
    "RunStage": {
        *("name", "kind", "status", "artifact", "metrics", "size", "memory", "latency", "reported"),
        "figures",
    },
    "Comparison": {
        *("document", "folder", "exit_code", "rows", "fronts", "runs", "to_pandas", "show"),
    },
    "SearchResult": {
        *(
            "document",
            "folder",
            "exit_code",
            "trials",
            "front",
            "best",
            "run",
            "artifact",
            "recipe",
        ),
        *("to_pandas", "show"),
    },
}


def test_the_names_are_these_of_version_1() -> None:
    names = {*PARAMETERS, *ERRORS, *ATTRIBUTES, "API_VERSION", "__version__"}
    assert set(shrink.__all__) == names
    assert shrink.API_VERSION == 1
    assert names <= set(dir(shrink))


def test_editors_complete_the_keywords_of_the_schema() -> None:
    written = (ROOT / "shrink" / "__init__.pyi").read_text(encoding="utf-8")
    assert written == stub(), "run `python -m docs.stubs > shrink/__init__.pyi`"
    classes = {o.name: o for o in ast.parse(written).body if isinstance(o, ast.ClassDef)}
    keys = {name: {one.target.id for one in c.body} for name, c in classes.items()}  # type: ignore[attr-defined]
    assert {"sparsity", "importance"} <= keys["_Prune"]
    assert {"optimizer", "memory_limit"} <= keys["_Training"]
    assert {"flash", "max_drop", "jobs"} <= keys["_Search"]
    assert "from_" not in keys["_Prune"]


@pytest.mark.parametrize("name", PARAMETERS)
def test_functions_have_these_parameters(name: str) -> None:
    found = inspect.signature(getattr(shrink, name)).parameters.values()
    names = (str(one).partition(":")[0].partition("=")[0].strip() for one in found)
    assert tuple(names) == PARAMETERS[name]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_results_have_these_attributes(name: str) -> None:
    kind = getattr(results, name)
    fields = {field.name for field in dataclasses.fields(kind)}
    public = {one for one in vars(kind) if not one.startswith("_")}
    assert fields | public == ATTRIBUTES[name]


@pytest.mark.parametrize("name", ERRORS)
def test_errors_have_these_exit_codes(name: str) -> None:
    kind = getattr(shrink, name)
    assert issubclass(kind, ShrinkError)
    assert kind.exit_code == ERRORS[name]


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: shrink.quantize("m.h5", schema="float16"), "scheme"),  # type: ignore[call-arg]
        (lambda: shrink.train("m.h5", data_validation_splt=0.1), "data_validation_split"),  # type: ignore[call-arg]
        (lambda: shrink.run("digits", outptu="x"), "output"),  # type: ignore[call-arg]
        (lambda: shrink.sweep("digits", job=2), "jobs"),  # type: ignore[call-arg]
        (lambda: shrink.search("digits", flahs="64KB"), "flash"),  # type: ignore[call-arg]
        (lambda: shrink.profile("m.h5", 8, memory="2GB"), "memory_limit"),  # type: ignore[call-arg]
    ],
)
def test_a_keyword_that_there_is_not_is_refused(call: Callable[[], object], meant: str) -> None:
    with pytest.raises(shrink.RecipeError, match="unknown key") as caught:
        call()
    assert meant in str(caught.value.hint)


def test_a_comparison_that_lies_in_no_folder_is_not_compared_again() -> None:
    found = results.Comparison(Comparison(rows=(), title="two runs"))
    with pytest.raises(shrink.RecipeError, match="without a folder holds no runs"):
        shrink.compare(found)


def test_rooms_with_a_functions_name_are_called_as_it() -> None:
    from shrink.run import session

    assert Path("runs") == session.RUNS
    with pytest.raises(shrink.RecipeError, match="digitz"):
        shrink.run("digitz")
    assert "recipe" in inspect.signature(shrink.run).parameters
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = shrink.nothing  # type: ignore[attr-defined]
    assert callable(shrink.compact)
    assert callable(api.compact)


def test_import_loads_nothing_and_verbs_nothing_heavy() -> None:
    code = (
        "import sys, shrink\n"
        "print([m for m in sys.modules if m.startswith('shrink.')])\n"
        "heavy = ('tensorflow', 'keras', 'tf_keras', 'numpy', 'pydantic', 'rich', 'typer')\n"
        "print([m for m in heavy if m in sys.modules])\n"
        "shrink.RecipeError, shrink.quantize\n"
        "print([m for m in heavy if m in sys.modules and m != 'pydantic'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "[]\n[]\n[]\n"
