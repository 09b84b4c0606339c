"""`shrink docs`: what is found under a name, and what is done with it."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from shrink.base.errors import RecipeError
from shrink.cli import docs
from shrink.tools.pages import ADDRESS, Pages, installed_pages
from tests.cli.shell import shrink


@pytest.fixture(scope="module")
def pages() -> Pages:
    return installed_pages()


@pytest.mark.parametrize(
    ("topic", "page", "anchor"),
    [
        ("quantize", "quantize.md", ""),
        ("shrink quantize", "reference/cli.md", "#shrink-quantize"),
        ("data check", "reference/cli.md", "#shrink-data-check"),
        ("prune.sparsity", "recipe.md", "#stage-prune"),
        ("training.memory_limit", "recipe.md", "#training"),
        ("memory-limit", "recipe.md", "#training"),
        ("arena_bytes", "reference/figures.md", ""),
        ("roc_auc", "metrics.md", ""),
        ("static_wi8_ai8", "quantize.md", "#schemes"),
        ("ConversionError", "reference/errors.md", ""),
        ("exit code 5", "reference/errors.md", ""),
        ("143", "reference/errors.md", ""),
        ("baseline-at-chance", "report.md", "#how-to-read-it"),
        ("r.yaml:3:5: prune.sparsity must lie below 1", "recipe.md", "#stage-prune"),
        ("ResourceError: no space is left", "reference/errors.md", ""),
    ],
)
def test_a_name_leads_to_the_section_that_explains_it(
    pages: Pages, topic: str, page: str, anchor: str
) -> None:
    found = pages.find(topic)
    assert found.page == page
    if anchor or found.is_page:
        assert found.anchor == anchor


def test_sections_end_where_the_next_begins(pages: Pages) -> None:
    text = pages.find("prune.sparsity").text
    assert text.startswith("## Stage `prune`")
    assert "`sparsity`" in text
    assert "## Stage `cluster`" not in text


@pytest.mark.parametrize("topic", ["squantize", "prune.sparsty", "ConversionEror"])
def test_an_unknown_name_is_refused_with_the_nearest(pages: Pages, topic: str) -> None:
    with pytest.raises(RecipeError) as caught:
        pages.find(topic)
    assert str(caught.value.hint).startswith("did you mean")
    with pytest.raises(RecipeError, match="199"):
        pages.find("exit code 199")


def test_an_address_is_the_teams_or_that_of_a_site_that_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ADDRESS, raising=False)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("# Home\n\n## A `key`, and more\n")
    section = Pages(tmp_path / "docs").find("A key, and more")
    assert section.anchor == "#a-key-and-more"
    assert Pages(tmp_path / "docs").address(section) is None
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").touch()
    built = (tmp_path / "site" / "index.html").as_uri()
    assert Pages(tmp_path / "docs").address(section) == f"{built}#a-key-and-more"
    monkeypatch.setenv(ADDRESS, "https://example.com/shrink/")
    address = Pages(tmp_path / "docs").address(section)
    assert address == "https://example.com/shrink/index.html#a-key-and-more"


@pytest.mark.parametrize("opens", [True, False])
def test_a_terminal_opens_a_browser_or_shows_the_text(
    opens: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setenv(ADDRESS, "https://example.com")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    def opened(url: str) -> bool:
        asked.append(url)
        return opens

    monkeypatch.setattr("webbrowser.open", opened)
    docs.docs(["prune.sparsity"])
    assert asked == ["https://example.com/recipe.html#stage-prune"]
    assert ("sparsity" in capsys.readouterr().out) is not opens


def test_the_command_prints_lists_and_refuses(tmp_path: Path) -> None:
    env = {ADDRESS: "https://example.com"}
    run = functools.partial(shrink, cwd=tmp_path, store=tmp_path)
    assert run("docs", "quantize", "--print", env=env).stdout == (
        "https://example.com/quantize.html\n"
    )
    plain = {ADDRESS: ""}
    assert "## Stage `prune`" in run("docs", "prune.sparsity", env=plain).stdout
    listed = json.loads(run("docs", "--json").stdout)
    assert listed["pages"]["recipe.md"] == "The recipe, key by key"
    found = json.loads(run("docs", "prune.sparsity", "--json", env=env).stdout)
    assert (found["page"], found["address"]) == (
        "recipe.md",
        "https://example.com/recipe.html#stage-prune",
    )
    assert "did you mean" in run("docs", "quantise", expect=2).stderr
