from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shrink.run.commit import commit_of


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


def test_commit_is_that_of_the_folder_also_within_a_hook_of_git(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("other")
    git(other, "init")
    head = git(repository, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert commit_of(repository) == head
    monkeypatch.setenv("PATH", "")
    assert commit_of(repository) is None
