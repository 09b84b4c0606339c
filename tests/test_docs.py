"""The documentation: every command runs, links lead somewhere, the generated page is current.

A block fenced as `console` holds commands that run here; `console slow` those that train.
"""

from __future__ import annotations

import functools
import json
import re
import runpy
import shlex
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs import reference_pages, refresh
from shrink.base.figures import FIGURES
from shrink.base.files import sha256
from shrink.data.config import DataConfig
from shrink.measure.inference import one_op_model
from shrink.recipe.bundle import bundled_root
from shrink.recipe.load import recipe_from_mapping, validate_section
from shrink.recipe.matrix import load_variants
from shrink.recipe.search_config import SearchConfig
from shrink.report.config import parse_gates
from shrink.task.config import TaskConfig
from tests.cli.shell import shrink
from tests.forks import ARENA
from tests.report.toys import report

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
EXAMPLES = sorted((DOCS / "examples").iterdir())
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the content of each fenced block."""
    return [(m[1].strip(), m[2]) for m in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def commands(kind: str) -> list[Any]:
    """The commands of all blocks of a kind, as test cases."""
    found = []
    for page in PAGES:
        if page in TUTORIALS and kind != "console":
            continue  # tests/test_tutorials.py goes through these from the first line to the last
        for language, content in blocks(page):
            if language == kind:
                lines = [line[2:] for line in content.splitlines() if line.startswith("$ ")]
                found += [pytest.param(line, id=f"{page.name}: {line}") for line in lines]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout's recipes and models, and what two runs left."""
    path = tmp_path_factory.mktemp("docs")
    for name in ("recipes", "models"):
        shutil.copytree(bundled_root() / name, path / name)
    for name in ("main", "digits"):
        (path / "runs" / name / "artifacts").mkdir(parents=True)
        artifact = path / "runs" / name / "artifacts" / "02-quantize.tflite"
        artifact.write_bytes(one_op_model())
        built = report()
        built["stages"][-1]["sha256"] = sha256(artifact)
        (path / "runs" / name / "report.json").write_text(json.dumps(built), encoding="utf-8")
    return path


@pytest.mark.parametrize("line", commands("console"))
def test_light_commands_run(line: str, folder: Path) -> None:
    program, *words = shlex.split(line)
    assert program == "shrink"
    shrink(*words, cwd=folder, store=folder / "store")


@pytest.fixture(scope="module")
def with_models(folder: Path) -> Path:
    """The same with a model, its int8 file, pictures, and a real run of the digits."""
    import tf_keras as keras
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for number, image in enumerate(digits.images[:400]):
        path = folder / "pictures" / str(digits.target[number])
        path.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15).astype("uint8")).resize((16, 16)).save(path / f"{number}.png")
    layers = keras.layers
    hidden = layers.Conv2D(8, 3, activation="relu")(inputs := layers.Input((16, 16, 3)))
    outputs = layers.Dense(10)(layers.GlobalAveragePooling2D()(hidden))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras would rather have another format
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a format that people have, none the less
            keras.Model(inputs, outputs).save(folder / "model.h5")
    shutil.rmtree(folder / "runs" / "digits")
    run = functools.partial(shrink, cwd=folder, store=folder / "store", measured=[ARENA])
    run("run", "recipes/digits.yaml", "--output", "runs/digits")
    run("quantize", "model.h5", "--data", "pictures/", "--output", "model.tflite")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("line", commands("console slow"))
def test_heavy_commands_run(line: str, with_models: Path) -> None:
    program, *words = shlex.split(line)
    assert program == "shrink"
    shrink(*words, cwd=with_models, store=with_models / "store", measured=[ARENA])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_command_stands_where_nothing_runs_it(page: Path) -> None:
    for language, content in blocks(page):
        if not language.startswith(("console", "yaml")):
            assert "shrink " not in content, language


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#:]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_blank_line_is_above_each_heading(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not re.findall(r"[^\n]\n(#{1,4} .*)", text)


def documents() -> list[Any]:
    """The YAML blocks, as test cases."""
    found = []
    for page in PAGES:
        for number, (language, content) in enumerate(blocks(page)):
            if language == "yaml":
                found.append(pytest.param(yaml.safe_load(content), id=f"{page.name}-{number}"))
    return found


@pytest.mark.parametrize("document", documents())
def test_yaml_blocks_hold_what_the_reader_accepts(document: dict[str, Any], tmp_path: Path) -> None:
    words = [w for w in _strings(document) if w.startswith("shrink ")]
    for line in words:
        recipe = shlex.split(line)[2]
        assert (bundled_root() / recipe).is_file(), line
    if "gates" in document:
        assert parse_gates(document["gates"])
    if isinstance(document.get("stages"), list):
        base = {"name": "r", "model": "m.keras", "data": {"source": "digits"}}
        assert recipe_from_mapping({**base, "stages": document["stages"]}, "docs").recipe.stages
    if "matrix" in document:
        base = {"name": "r", "model": "m.keras", "data": {"source": "digits"}}
        swept = {**base, "stages": [{"prune": {"sparsity": 0.5}}], **document}
        (tmp_path / "r.yaml").write_text(json.dumps(swept), encoding="utf-8")
        assert load_variants(tmp_path / "r.yaml").is_sweep
    if "data" in document:
        assert validate_section(DataConfig, document["data"], "docs")
    if "depends" in document:
        base = {"name": "r", "model": "m.keras", "data": {"source": "digits"}}
        assert recipe_from_mapping({**base, "depends": document["depends"]}, "docs").recipe.depends
    if "task" in document:
        assert validate_section(TaskConfig, document["task"], "docs")
    if "search" in document:
        assert validate_section(SearchConfig, document["search"], "docs").space
    # A block of no such kind has to be a CI system's, with a command or a file of ours in it.
    kinds = {"gates", "stages", "data", "matrix", "task", "search", "depends"}
    assert words or _names_ours(document) or kinds & document.keys()


def _names_ours(document: dict[str, Any]) -> bool:
    """Whether a block uses the action, GitLab's include or the hook, by what these have."""
    root = DOCS.parent
    action = yaml.safe_load((root / "action.yml").read_text("utf-8"))
    (hook,) = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text("utf-8"))
    job = yaml.safe_load((root / "ci" / "gitlab.yml").read_text("utf-8"))[".shrink"]
    found = False
    for one in _mappings(document):
        if "/shrink@" in str(one.get("uses")):
            assert one["with"].keys() <= action["inputs"].keys()
            found = True
        if one.get("extends") == ".shrink":
            assert one["variables"].keys() <= job["variables"].keys()
            found = True
        found = found or one.get("id") == hook["id"]
    return found


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            yield from _mappings(item)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, str):
        yield value


def test_recipe_reference_is_current() -> None:
    made = runpy.run_path(str(DOCS / "recipe_reference.py"))["reference"]()
    written = (DOCS / "recipe.md").read_text(encoding="utf-8")
    assert written == made, "run `python docs/recipe_reference.py > docs/recipe.md`"


def test_recipe_reference_has_a_table_for_each_mapping() -> None:
    text = (DOCS / "recipe.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    headings = [section.partition("\n")[0] for section in sections]
    for section, heading in zip(sections, headings, strict=True):
        within = heading.strip("`").rpartition(" ")[2].strip("`")
        for key in re.findall(r"^\| `(\w+)` \| [^|]*mapping, see below", section, re.MULTILINE):
            names = [f"`{key}`", f"`{within}.{key}`"]
            assert any(name in other for other in headings for name in names), (within, key)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_run_recipes_that_there_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    recipes = re.findall(r"shrink run (\S+\.yaml)", text)
    assert recipes
    assert all((bundled_root() / recipe).is_file() for recipe in recipes)
    if path.suffix == ".yaml":
        assert yaml.safe_load(text)["kind"] == "TFJob"
    else:
        subprocess.run(["bash", "-n", path], check=True)


def test_scaling_table_is_current() -> None:
    made = runpy.run_path(str(DOCS / "scaling_table.py"))["table"](25_600_000, (0.05, 0.2, 1), 100)
    assert made in (DOCS / "scaling.md").read_text(encoding="utf-8")


def test_requirements_without_tensorflow_are_current() -> None:
    written = (DOCS.parent / "requirements-tflite.txt").read_text(encoding="utf-8")
    assert written == refresh.requirements_tflite(), "run `python -m docs.refresh requirements`"


def test_reference_pages_are_current() -> None:
    assert all(figure.meaning and figure.title and figure.head for figure in FIGURES.values())
    written = {path: path.read_text(encoding="utf-8") for path in (DOCS / "reference").iterdir()}
    assert written == dict(reference_pages.pages()), "run `python -m docs.refresh reference`"


def test_recipes_page_and_plot_are_current() -> None:
    root = DOCS.parent
    written = (root / "recipes" / "README.md").read_text(encoding="utf-8")
    assert written == refresh.recipes_page(), "run `python -m docs.refresh recipes`"
    drawn = (DOCS / "accuracy-against-size.svg").read_text(encoding="utf-8")
    assert drawn == refresh.plot(), "run `python -m docs.refresh plot`"


def test_the_picture_shows_a_run_without_its_notes() -> None:
    output = (
        "digits: PASSED\n\nstage\ntrain\n\nnotes\n  train: a note\n\nreport: a.html\na.tflite\n"
    )
    shown = "digits: PASSED\n\nstage\ntrain\n\nreport: a.html\na.tflite"
    assert refresh.shown_output(output) == shown
