"""What a report says of its data, and the commit around a recipe, against git's own answers."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from shrink.contract.codec import to_plain
from shrink.contract.result import StepResult
from shrink.data.config import DataConfig
from shrink.run.lineage import commit_of, describe_data
from tests.report.toys import outcomes, with_result

COUNTS = {"examples": {"train": 90, "validation": 10, "test": 20}, "classes": ["cat", "dog"]}


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "first")
    (tmp_path / "recipes").mkdir()
    return tmp_path


def test_commit_of_a_folder_in_a_repository_is_its_head(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    assert commit_of(repository / "recipes") == head
    git(repository, "pack-refs", "--all")
    assert not (repository / ".git/refs/heads/main").exists()
    assert commit_of(repository) == head
    git(repository, "checkout", "--detach")
    assert commit_of(repository) == head
    git(repository, "worktree", "add", "-b", "other", "tree")
    assert commit_of(repository / "tree") == head


def test_commit_of_a_folder_without_commits_is_none(tmp_path: Path) -> None:
    git(tmp_path, "init")
    assert commit_of(tmp_path) is None
    (tmp_path / ".git/HEAD").write_text("ref: ../../../etc/passwd\n", encoding="utf-8")
    assert commit_of(tmp_path) is None


def test_describe_data_tells_what_the_first_stage_that_ran_counted() -> None:
    train, prune, _ = outcomes()
    config = DataConfig(source="npz", path="/home/me/secret/pics.npz")
    told = describe_data(config, "ab", [with_result(train, data=COUNTS), prune])
    assert to_plain(told) == {"source": "npz", "path": "pics.npz", "fingerprint": "ab", **COUNTS}
    failed = replace(train, status="failed", result=StepResult())
    assert describe_data(config, "ab", [failed]).examples is None
