"""What makes the site of docs/: links, lists as GitHub shows them, and the check of what was built.

`.ci/run` builds the site itself, by `python -m docs.check_site`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import check_site, site

ROOT = Path(__file__).parents[1]


def test_links_out_of_docs_lead_to_copies_in_the_site() -> None:
    text = "[a](../SECURITY.md) [b](data.md#splits) [c](https://example.com) [d](#here)"
    moved = "[a](project/SECURITY.md) [b](data.md#splits) [c](https://example.com) [d](#here)"
    assert site.with_links(text, "faq.md") == moved
    assert site.with_links("[a](../../examples/x.ipynb)", "tutorials/ci.md") == (
        "[a](../project/examples/x.ipynb)"
    )
    assert site.with_links("[a](docs/ci.md) [b](SECURITY.md)", "project/CONTRIBUTING.md") == (
        "[a](../ci.md) [b](SECURITY.md)"
    )


def test_files_outside_of_docs_are_those_that_pages_link_to() -> None:
    found = site.outside()
    assert {"SECURITY.md", "CONTRIBUTING.md", "Dockerfile", "recipes/README.md"} <= {*found}
    assert all((ROOT / path).is_file() for path in found)
    assert not any(path.startswith("docs/") for path in found)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("- a\n\n  b\n- c", "- a\n\n    b\n\n- c"),
        ("1. a\n\n   | b |\n2. c", "1. a\n\n    | b |\n\n2. c"),
        ("- a\n  - b\n", "- a\n    - b"),
        ("a\n\n    code\n", "a\n\n    code"),
        ("```console slow exit 1\n$ shrink\n```", "```bash\nshrink\n```"),
    ],
)
def test_markdown_is_read_as_github_does(written: str, read: str) -> None:
    assert site.as_python_markdown(written) == read


def test_check_names_what_is_wrong_with_a_built_site(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<h2 id="there">x</h2>')
    (tmp_path / "a.html").write_text(
        '<script src="https://example.com/x.js"></script><a href="b.html#there">1</a>'
        '<a href="b.html#gone">2</a><a href="c.html">3</a><a href="https://example.com">4</a>'
    )
    assert list(check_site.problems(tmp_path)) == [
        "a.html: loads https://example.com/x.js",
        "a.html: b.html#gone has no such anchor",
        "a.html: c.html is not there",
    ]
