"""Streams, places and disks that fail; signals; damage: the right exit code, and nothing lost."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import forks
from tests.cli.shell import command, environment, read_report, shrink
from tests.cli.toy import RECIPE, write_toy

ARGUMENTS = ("run", "toy.yaml", "--output", "out")


@dataclass(frozen=True)
class Toy:
    """A finished run of the toy recipe; to run it again takes everything from the store."""

    folder: Path
    store: Path
    printed: str
    """What it said, with interpreters of its own."""

    def shell(self, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a shell's command line in which `$SHRINK` stands for the words before the verb."""
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=environment(self.store, {"SHRINK": " ".join(command()), **env}),
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """Run the toy recipe in a folder whose name needs care."""
    folder = tmp_path_factory.mktemp("ein Ordner, größer — 模型")
    write_toy(folder)
    done = shrink(*ARGUMENTS, cwd=folder, store=folder / "store", fresh=True)
    return Toy(folder, folder / "store", done.stdout + done.stderr)


def test_run_prints_no_banner(toy: Toy) -> None:
    assert "toy: FINISHED, no gates" in toy.printed
    banners = ("cuda", "oneDNN", "WARNING", "XNNPACK", "I0000")
    assert not any(word in toy.printed for word in banners)


@pytest.mark.parametrize(
    ("script", "exit_code"),
    [
        ("$SHRINK run toy.yaml --output out | head -1; exit ${PIPESTATUS[0]}", 0),
        ("$SHRINK run toy.yaml --output out <&- >&- 2>&-", 0),
        ("$SHRINK run toy.yaml --output out --set gates.file_bytes=1 >&-", 1),
        ("$SHRINK run toy.yaml --output out > /dev/full", 5),
        ("$SHRINK run toy.yaml --output out --json > /dev/full", 5),
        ("$SHRINK run gone.yaml >&- 2>&-", 2),
    ],
)
def test_run_survives_its_streams(toy: Toy, script: str, exit_code: int) -> None:
    done = toy.shell(script)
    assert done.returncode == exit_code, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    if exit_code == 5:
        assert "stdout: cannot be written to: No space left on device" in done.stderr


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["ascii", "no UTF-8 anywhere"],
)
def test_run_survives_its_terminal(toy: Toy, env: dict[str, str]) -> None:
    done = toy.shell("$SHRINK run toy.yaml --output 'größer'", **env)
    assert done.returncode == 0, done.stderr
    assert "toy: FINISHED, no gates" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    done = toy.shell("$SHRINK run 'größe.yaml'", **env)
    assert done.returncode == 2
    assert "no such recipe" in done.stderr


def test_run_takes_paths_of_any_name(toy: Toy) -> None:
    for name in ("-- a -b", "-out", "日本 語"):
        shutil.copy(toy.folder / "toy.yaml", toy.folder / f"{name}.yaml")
        arguments = ["run", "--output", f"{name}-out", "--", f"{name}.yaml"]
        shrink(*arguments, cwd=toy.folder, store=toy.store)
        assert read_report(toy.folder / f"{name}-out")["passed"] is True


def test_run_needs_no_home(toy: Toy) -> None:
    done = toy.shell("unset HOME; $SHRINK run toy.yaml --output homeless")
    assert done.returncode == 0, done.stderr


def test_run_refuses_a_store_that_cannot_be_written(toy: Toy) -> None:
    words = ("run", "toy.yaml", "--output", "unstored")
    for place in ("/proc/shrink", "toy.yaml"):
        done = shrink(*words, cwd=toy.folder, store=Path(place), expect=5)
        assert "the cache cannot be written to" in done.stderr
        assert "SHRINK_CACHE_DIR" in done.stderr
        assert not (toy.folder / "unstored").exists()


def test_run_keeps_another_recipes_run_without_force(toy: Toy) -> None:
    shutil.copytree(toy.folder / "out", toy.folder / "theirs")
    (toy.folder / "theirs" / "notes.txt").write_text("mine", encoding="utf-8")
    before = contents(toy.folder / "theirs")
    other = RECIPE.replace("name: toy", "name: other")
    (toy.folder / "other.yaml").write_text(other, encoding="utf-8")
    arguments = ("run", "other.yaml", "--output", "theirs")
    done = shrink(*arguments, cwd=toy.folder, store=toy.store, expect=2)
    assert "theirs: the output folder holds a run of the recipe 'toy'" in done.stderr
    assert "--force" in done.stderr
    assert contents(toy.folder / "theirs") == before
    shrink(*arguments, "--force", cwd=toy.folder, store=toy.store)
    assert read_report(toy.folder / "theirs")["recipe"]["name"] == "other"
    assert (toy.folder / "theirs" / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_two_runs_into_one_folder_leave_one_whole_run(toy: Toy) -> None:
    words = ("run", "toy.yaml", "--output", "both")
    runs = forks.run_together([words, words], toy.folder, environment(toy.store))
    assert [run.returncode for run in runs] == [0, 0], runs
    assert read_report(toy.folder / "both")["passed"] is True
    assert contents(toy.folder / "both").keys() == contents(toy.folder / "out").keys()


def test_a_full_disk_is_named_and_the_last_run_stays_whole(toy: Toy) -> None:
    before = contents(toy.folder / "out")
    # The limit is one on each file: the worker's job is the first that does not fit.
    done = subprocess.run(
        command(*ARGUMENTS, "--set", "train.epochs=2"),
        cwd=toy.folder,
        env=environment(toy.store, {"PYTHONDONTWRITEBYTECODE": "1"}),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200)),
    )
    assert done.returncode == 5, done.stderr
    assert "cannot write: File too large" in done.stderr
    assert "free some space" in done.stderr
    after = contents(toy.folder / "out")
    assert after.get("report.json") in (None, before["report.json"])
    assert after["artifacts/00-train.keras"] == before["artifacts/00-train.keras"]
    shrink(*ARGUMENTS, cwd=toy.folder, store=toy.store)
    assert list((toy.store / "work").iterdir()) == []


def test_a_full_disk_in_a_stage_is_a_failed_stage(toy: Toy) -> None:
    # The model's file is a megabyte, the report's files are not.
    large = ("--set", "model=toy.py:build_large")
    words = ("run", "toy.yaml", "--output", "tight", *large)
    env = environment(toy.store)
    (done,) = forks.run_together([words], toy.folder, env, file_bytes=200_000)
    assert done.returncode == 5, done.stderr
    assert "cannot write: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    report = read_report(toy.folder / "tight")
    assert report["passed"] is False
    assert report["stages"][0]["status"] == "failed"
    assert report["stages"][0]["error"]["exit_code"] == 5


@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare")
def test_a_store_without_room_is_named(toy: Toy) -> None:
    mount = "mkdir -p tiny && mount -t tmpfs -o size=16k none tiny"
    probe = toy.shell(f"unshare -m bash -c '{mount}'")
    if probe.returncode != 0:
        pytest.skip("nothing may be mounted here")
    run = "SHRINK_CACHE_DIR=$PWD/tiny exec $SHRINK run toy.yaml --output tiny-out"
    fill = "head -c 1M /dev/zero > tiny/filler 2>/dev/null"
    done = toy.shell(f"unshare -m bash -c '{mount}; {fill}; {run}'")
    assert done.returncode == 5, done.stderr
    assert "No space left on device" in done.stderr
    assert "SHRINK_CACHE_DIR" in done.stderr


ENDLESS = ("run", "toy.yaml", "--set", "train.epochs=100000", "--output")


def test_a_signal_ends_the_run_and_all_its_processes(toy: Toy) -> None:
    run = start(toy, *ENDLESS, "interrupted")
    wait_until_training(run)
    assert len(processes_of(toy)) >= 2
    run.send_signal(signal.SIGINT)
    _, stderr = run.communicate(timeout=30)
    check_interrupted(toy, "interrupted", 130, run.returncode, stderr)
    assert processes_of(toy) == []


def test_termination_has_an_exit_code_of_its_own(toy: Toy) -> None:
    words, env = (*ENDLESS, "terminated"), environment(toy.store)
    (run,) = forks.run_together([words], toy.folder, env, interrupt=signal.SIGTERM)
    check_interrupted(toy, "terminated", 143, run.returncode, run.stderr)


def check_interrupted(toy: Toy, word: str, exit_code: int, found: int, stderr: str) -> None:
    assert found == exit_code
    assert f"{word}; run the same command again" in stderr
    assert "Traceback" not in stderr
    report = read_report(toy.folder / word)
    assert report["passed"] is False
    assert report["stages"][0]["error"]["exit_code"] == exit_code
    shrink(*ARGUMENTS, cwd=toy.folder, store=toy.store)
    assert list((toy.store / "work").iterdir()) == []


def test_a_damaged_store_is_a_warning_and_computed_again(toy: Toy, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(toy.store, store)
    for path in (store / "steps").rglob("*.keras"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    done = shrink(*ARGUMENTS[:2], "--output", tmp_path / "out", cwd=toy.folder, store=store)
    assert "warning: the cache entry" in done.stderr
    assert "is corrupt" in done.stderr
    assert read_report(tmp_path / "out")["stages"][0]["status"] == "done"


def start(toy: Toy, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments),
        cwd=toy.folder,
        env=environment(toy.store),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until_training(run: subprocess.Popen[str]) -> None:
    """Read what a run says until its first epoch has ended."""
    for line in run.stderr or ():
        if "epoch " in line:
            return
    raise AssertionError(f"the run ended with {run.wait()} before it trained")


def processes_of(toy: Toy) -> list[str]:
    """Return the command lines of all processes that work on the toy's store."""
    return [line for store, line in _processes() if store == str(toy.store)]


def _processes() -> Iterator[tuple[str, str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it ended meanwhile, or is somebody else's
            continue
        prefix = b"SHRINK_CACHE_DIR="
        store = next((os.fsdecode(v[len(prefix) :]) for v in variables if v.startswith(prefix)), "")
        yield store, line


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder by its relative path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
