"""Prints shrink/__init__.pyi: the Python functions with the keywords that editors complete.

Keywords and their types are those of the recipe's JSON Schema, as the command line's flags are.

Run: python -m docs.stubs > shrink/__init__.pyi
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import shrink
from shrink.api import given
from shrink.base.fields import named_fields
from shrink.data.config import DataConfig
from shrink.engine.config import TrainingConfig
from shrink.recipe.search_config import NOT_FLAGS, SearchConfig
from shrink.stages import STAGES
from shrink.task.config import TaskConfig

_HEAD = """\
# Made by `python -m docs.stubs > shrink/__init__.pyi`; do not edit.
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, Unpack

from shrink.api.kinds import DataGiven, ModelGiven, PathGiven
from shrink.contract.findings import Profile
"""
_RUNNING = {"output": "PathGiven | None", "custom_objects": "PathGiven | None"}
_TOOL = {"memory_limit": "int | str | None", "trace": "PathGiven | None"}
_SET = {"set": "Mapping[str, object]"}
_STAGES = {"from_stage": "str | None", "until": "str | None"}
_PLAIN = {"integer": "int", "number": "float", "string": "str", "boolean": "bool"}
_PLAIN |= {"null": "None", "object": "Mapping[str, object]", "array": "Sequence[object]"}


def stub() -> str:
    """Return the content of `shrink/__init__.pyi`."""
    lines = [_HEAD]
    functions = {*shrink._VERBS, *shrink._OTHERS}
    for name, place in shrink._PLACES.items():
        if name not in functions:
            lines.append(f"from {place} import {name} as {name}")
    running = {key: _RUNNING.get(key, "bool") for key in given.COMMON}
    run = {key: kind for key, kind in running.items() if key in given.RUNNING}
    training, seed = _keys(TrainingConfig), {"seed": _keys(TrainingConfig)["seed"]}
    data = {f"data_{key}": kind for key, kind in _keys(DataConfig).items()}
    task = {f"task_{key}": kind for key, kind in _keys(TaskConfig).items()}
    lines += _typed("_Common", (), running)
    lines += _typed("_Verb", ("_Common",), {**data, **task, "task": "Mapping[str, object]"})
    lines += _typed("_Training", ("_Verb",), training)
    bases: dict[str, tuple[str, ...]] = dict.fromkeys(("run", "sweep", "profile", "search"), ())
    own: dict[str, Mapping[str, str]] = {
        "run": {**run, **_SET, **_STAGES},
        "sweep": {**run, **_SET, "jobs": "int"},
        "profile": {**_TOOL, **{key: running[key] for key in given.TOOL if key in running}},
        "search": {**running, **_SET, "jobs": "int", **_search()},
    }
    for verb in shrink._VERBS:
        stage = _keys(STAGES[verb]) if verb in STAGES else {}
        trains = "epochs" in stage
        parameters = ("teacher", "student") if verb == "distill" else ()
        skip = {*given._NOT_KEYS, "from", *parameters, *(training if trains else ())}
        own[verb] = ({} if trains else seed) | {k: v for k, v in stage.items() if k not in skip}
        bases[verb] = ("_Training" if trains else "_Verb",)
    own["evaluate"] = {**own["evaluate"], "gates": "Mapping[str, object]"}
    for verb, keys in own.items():
        lines += _typed(f"_{verb.capitalize()}", bases[verb], keys)
    for name in (*shrink._VERBS, *shrink._OTHERS):
        lines += ["", *_function(name, f"_{name.capitalize()}" if name in own else None)]
    return "\n".join([*lines, "", "__all__: list[str]", "__version__: str", ""])


def _keys(section: type[BaseModel]) -> dict[str, str]:
    """Return the types of a section's keys, by the names that a recipe has."""
    schema = section.model_json_schema()
    defs = schema.get("$defs", {})
    return {key: _type(value, defs) for key, value in schema["properties"].items()}


def _search() -> dict[str, str]:
    schema = SearchConfig.model_json_schema()
    defs, found = schema["$defs"], {}
    for name, keys, _ in named_fields(SearchConfig, NOT_FLAGS):
        section = schema if len(keys) == 1 else defs["Constraints"]
        found[name] = _type(section["properties"][keys[-1]], defs)
    return found


def _type(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    """Return the Python type of what a JSON Schema allows."""
    if "$ref" in schema:
        return _type(defs[schema["$ref"].rpartition("/")[2]], defs)
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return f"Literal[{', '.join(map(repr, values))}]"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            kinds = dict.fromkeys(_type(one, defs) for one in schema[several])
            return " | ".join(sorted(kinds, key=lambda kind: kind == "None"))
    return _PLAIN.get(schema.get("type", ""), "object")


def _typed(name: str, bases: Iterable[str], keys: Mapping[str, str]) -> list[str]:
    parents = ", ".join(bases) or "TypedDict"
    lines = ["", f"class {name}({parents}, total=False):"]
    return [*lines, *(f"    {key}: {kind}" for key, kind in keys.items())]


def _function(name: str, keys: str | None) -> list[str]:
    """Return a function of `shrink.api` with its docstring, its keywords typed."""
    place = sys.modules[getattr(shrink.api, name).__module__]
    tree = ast.parse(Path(str(place.__file__)).read_text(encoding="utf-8"))
    found = next(o for o in tree.body if isinstance(o, ast.FunctionDef) and o.name == name)
    text = ast.get_docstring(found) or ""
    if found.args.kwarg is not None and keys is not None:
        found.args.kwarg.annotation = ast.Name(f"Unpack[{keys}]")
    assert found.returns is not None
    head = f"def {name}({ast.unparse(found.args)}) -> {ast.unparse(found.returns)}:"
    indented = text.replace("\n", "\n    ").replace("    \n", "\n")
    return [head, f'    """{indented}"""']


if __name__ == "__main__":
    sys.stdout.write(stub())
