"""The action, GitLab's include and the hook do what they say, step by step."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ci.runner import ROOT, Checkout
from tests.cli.toy import write_toy

_SHRINK = """#!/usr/bin/env bash
# Stands for shrink: a run ends with the code in the file `code`.
set -eu
echo "$*" >> words
if [ "$1" = diff ]; then echo "tflite_bytes: 1000 instead of 2000"; exit 0; fi
while [ "$1" != --output ]; do shift; done
mkdir -p "$2"; echo '{}' > "$2/report.json"
printf '# digits: PASSED\\n\\n## Gates\\n\\n## Stages\\n\\nrows\\n' > "$2/report.md"
echo "passed=true" >> "$GITHUB_OUTPUT"; echo "tflite_bytes=1000" >> "$GITHUB_OUTPUT"
exit "$(cat code)"
"""

_CURL = """#!/bin/sh
# Stands for curl: writes a report, and the address that it was given.
for last; do true; done
echo "$last" > address; echo '{}' > main-report/report.json
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path / "repository", tmp_path / "hub", tmp_path / "tools")
    made.tool("shrink", _SHRINK)
    (made.folder / "code").write_text("0", encoding="utf-8")
    return made


def comments(checkout: Checkout) -> list[str]:
    """The comments of the pull request, the oldest first."""
    found = sorted((checkout.hub / "comments").glob("*"))
    return [path.read_text(encoding="utf-8") for path in found]


def words(checkout: Checkout) -> list[str]:
    return (checkout.folder / "words").read_text(encoding="utf-8").splitlines()


def test_a_push_keeps_the_report_and_a_pull_request_is_compared_with_it(checkout: Checkout) -> None:
    inputs = {"recipe": "a recipe.yaml", "set": "prune.sparsity=0.7\ntraining.seed=1\n"}
    done = checkout.event("push", inputs)
    run = "run a recipe.yaml --output runs/shrink --set prune.sparsity=0.7 --set training.seed=1"
    assert (done["code"], words(checkout)) == (0, [run])
    assert done["outputs"]["steps.run.outputs.passed"] == "true"
    assert (checkout.hub / "shrink-main-report" / "report.json").is_file()
    assert comments(checkout) == []
    for _ in (1, 2):  # the second edits the first one's comment
        done = checkout.event("pull_request", inputs)
        assert done["code"] == 0
        assert "1000 instead of 2000" in done["summary"]
        (comment,) = comments(checkout)
        assert comment.startswith(
            "<!-- shrink shrink -->\nA: branch main, B: this pull request\n\n"
        )
        assert "1000 instead of 2000" in comment


def test_comments_of_others_and_of_another_use_stay_as_they_are(checkout: Checkout) -> None:
    (checkout.hub / "comments").mkdir()
    (checkout.hub / "comments" / "0").write_text("of another bot", encoding="utf-8")
    uses = [{"recipe": "digits"}, {"recipe": "tones", "name": "tones", "output": "runs/tones"}]
    for event in ("push", "pull_request", "pull_request"):
        for inputs in uses:
            assert checkout.event(event, inputs)["code"] == 0
    assert [one.splitlines()[0] for one in comments(checkout)] == [
        "of another bot",
        "<!-- shrink shrink -->",
        "<!-- shrink tones -->",
    ]
    assert {path.name for path in checkout.hub.glob("*-run")} == {"shrink-run", "tones-run"}
    assert {key.partition("-")[0] for key in checkout.saved} == {"shrink", "tones"}


def test_a_missed_gate_ends_red_after_the_comment_and_is_not_kept(checkout: Checkout) -> None:
    checkout.event("push", {"recipe": "digits"})
    (checkout.folder / "code").write_text("1", encoding="utf-8")
    done = checkout.event("pull_request", {"recipe": "digits"})
    assert done["code"] == 1
    assert len(comments(checkout)) == 1
    assert len(checkout.saved) == 2
    assert (checkout.hub / "shrink-run" / "report.json").is_file()
    kept = checkout.hub / "shrink-main-report" / "report.json"
    kept.unlink()
    assert checkout.event("push", {"recipe": "digits"})["code"] == 1
    assert not kept.exists()


def test_a_first_pull_request_and_one_without_permission_still_run(checkout: Checkout) -> None:
    assert checkout.event("pull_request", {"recipe": "digits"})["code"] == 0
    assert "There is no report of main yet" in checkout.log
    (comment,) = comments(checkout)
    assert comment == "<!-- shrink shrink -->\n# digits: PASSED\n\n## Gates\n\n"
    checkout.event("push", {"recipe": "digits"})
    checkout.tool(
        "gh",
        """#!/bin/sh
        case "$1 $2" in
          "run list") echo 7 ;;
          "run download") mkdir main-report; echo "{}" > main-report/report.json ;;
          *) exit 1 ;;
        esac
        """,
    )
    assert checkout.event("pull_request", {"recipe": "digits"})["code"] == 0
    assert "needs the permission pull-requests: write" in checkout.log
    quiet = checkout.event("pull_request", {"recipe": "digits", "comment": "false"})
    assert quiet["code"] == 0


def test_no_input_is_pasted_into_a_script(tmp_path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    scripts = [step["run"] for step in action["runs"]["steps"] if "run" in step]
    assert len(scripts) == 6
    assert [script for script in scripts if "${{" in script] == []
    for script in scripts:
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text(encoding="utf-8")))
    assert used == set(action["inputs"])


def gitlab() -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text("utf-8"))[".shrink"]
    return job


@pytest.mark.parametrize("code", [0, 1])
def test_gitlabs_script_ends_as_the_run_ended(checkout: Checkout, code: int) -> None:
    (checkout.folder / "code").write_text(str(code), encoding="utf-8")
    checkout.tool("curl", _CURL)
    lines = ["set -eo pipefail", *gitlab()["script"]]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=checkout.folder,
        env={
            **{"PATH": f"{checkout.tools}:/usr/bin:/bin", "GITHUB_OUTPUT": "/dev/null"},
            **{"SHRINK_RECIPE": "my recipe.yaml", "SHRINK_OUTPUT": "runs/shrink"},
            **{"CI_API_V4_URL": "https://lab/api/v4", "CI_PROJECT_ID": "7", "CI_JOB_NAME": "model"},
            **{"CI_DEFAULT_BRANCH": "main", "CI_JOB_TOKEN": "secret"},
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert words(checkout)[0] == "run my recipe.yaml --output runs/shrink"
    report = "projects/7/jobs/artifacts/main/raw/runs/shrink/report.json?job=model"
    asked = (checkout.folder / "address").read_text(encoding="utf-8").strip()
    assert asked == f"https://lab/api/v4/{report}"
    assert "1000 instead of 2000" in done.stdout


def test_gitlab_keeps_finished_stages_of_a_job_that_failed() -> None:
    assert gitlab()["cache"]["when"] == "always"


def test_gitlabs_first_run_has_nothing_to_compare_with(checkout: Checkout) -> None:
    checkout.tool("curl", "#!/bin/sh\nexit 22\n")
    lines = ["set -eo pipefail", *gitlab()["script"]]
    environment = {"PATH": f"{checkout.tools}:/usr/bin:/bin", "GITHUB_OUTPUT": "/dev/null"}
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=checkout.folder,
        env={**environment, "SHRINK_OUTPUT": "runs/shrink", "CI_DEFAULT_BRANCH": "main"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "There is no report of main yet" in done.stdout
    assert [line.split()[0] for line in words(checkout)] == ["run"]


def test_the_hook_looks_at_recipes_alone(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert re.search(hook["files"], "recipes/digits.yaml")
    assert not re.search(hook["files"], "docs/recipes/digits.yaml")
    recipe = write_toy(tmp_path)
    program, *rest = shlex.split(hook["entry"])
    assert program == "shrink"
    for text, code in ((recipe.read_text(encoding="utf-8"), 0), ("name: toy\nepoch: 3\n", 2)):
        recipe.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "shrink", *rest, str(recipe)]
        assert subprocess.run(command, capture_output=True, check=False).returncode == code


def test_the_image_is_made_of_what_the_repository_has() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert kept[0] == "FROM python:3.11-slim"
    assert kept.index("USER 1000") > next(i for i, k in enumerate(kept) if k.startswith("RUN"))
    assert "useradd --create-home --uid 1000 " in "\n".join(lines)
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert not _needed_by_a_wheel() & {*ignored}


def _needed_by_a_wheel() -> set[str]:
    """Return what `pip install` of a copy of the repository reads, by pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    about = project["project"]
    files = {"pyproject.toml", about["readme"], *about["license-files"]}
    return files | {*wheel["packages"], *wheel["force-include"]}


@pytest.mark.slow
def test_a_strangers_repository_has_a_green_and_a_red_pull_request(tmp_path: Path) -> None:
    checkout = Checkout(
        tmp_path / "repository",
        tmp_path / "hub",
        tmp_path / "tools",
        {"SHRINK_CACHE_DIR": str(tmp_path / "store")},
    )
    checkout.tool("shrink", f'#!/bin/sh\nexec "{sys.executable}" -P -m shrink "$@"\n')
    recipe = write_toy(checkout.folder / "recipes")
    own = recipe.read_text(encoding="utf-8") + "  - quantize: {scheme: float16}\n"
    recipe.write_text(own + "gates: {tflite_bytes: 40KB}\n", encoding="utf-8")
    inputs = {"recipe": "recipes/toy.yaml"}
    assert checkout.event("push", inputs)["code"] == 0, checkout.log
    said = "no figure, stage or gate changed"
    for gate, code, told in (("40KB", 0, said), ("10B", 1, "A passes, B fails")):
        recipe.write_text(f"{own}gates: {{tflite_bytes: {gate}}}\n", encoding="utf-8")
        began = time.monotonic()
        done = checkout.event("pull_request", inputs)
        sys.stderr.write(f"a pull request took {time.monotonic() - began:.1f} s\n")
        assert done["code"] == code, checkout.log
        assert done["outputs"]["steps.run.outputs.exit-code"] == str(code)
        assert told in comments(checkout)[0]
    assert "::error title=gate tflite_bytes missed" in checkout.log
