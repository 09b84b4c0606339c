"""Questions to the process that says sizes: asked once, worked out meanwhile, and lost with it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from shrink.contract.codec import to_plain
from shrink.contract.job import Outline, OutlineJob
from shrink.recipe.plan import Plan
from shrink.run import outlined
from shrink.run.store import Store
from shrink.search import outliner as asked
from shrink.search.asking import Asking
from shrink.search.outliner import Outliner
from tests.jobs import quiet
from tests.search.fake import FakeAttempt, search


class Answering:
    """Answers the first question, by name, whenever somebody waits: in the place of a process.

    Attributes:
        questions: by their names, what the last step of each was.
        dies: with the next question.
    """

    dies = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.questions: dict[str, str] = {}

    def ended(self) -> bool:
        """Whether it lives no more."""
        return self.dies

    def work(self) -> None:
        """Answer a question."""
        for path in sorted(self._folder.glob("*.question.json"))[:1]:
            name = path.name.partition(".")[0]
            steps = json.loads(path.read_text())["steps"]
            self.questions[name] = str(steps[-1]["config"]["scheme"])
            path.rename(self._folder / f"{name}.begun.json")
            found = Outline(figures={"tflite_bytes": 100.0 * (1 + int(name[1:]))})
            (self._folder / f"{name}.answer.json").write_text(json.dumps(to_plain(found)))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Answering]:
    """Return what is started in the place of processes."""
    made = list[Answering]()

    @contextlib.contextmanager
    def start(job: OutlineJob, folder: Path, output: int) -> Iterator[Answering]:
        made.append(Answering(folder))
        yield made[-1]

    def sleep(seconds: float) -> None:
        made[-1].work()

    monkeypatch.setattr(asked, "start_worker", start)
    monkeypatch.setattr(asked, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    return made


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    candidates = search(tmp_path, Asking(trials=1), FakeAttempt()).candidates
    return [candidates.plan({"quantize.scheme": one}) for one in ("float16", "static_wi8_ai8")]


@pytest.fixture
def outliner(tmp_path: Path, plans: list[Plan]) -> Iterator[Outliner]:
    with Outliner(Store(tmp_path / "cache", warn=lambda text: pytest.fail(text))) as made:
        yield made


def test_what_is_known_is_not_asked_again(
    outliner: Outliner, plans: list[Plan], started: list[Answering]
) -> None:
    first, again = outliner.outline(plans[0]), outliner.outline(plans[0])
    assert first.figures == again.figures == {"tflite_bytes": 100.0}
    outliner.expect(plans[0])
    assert outliner.outline(plans[1]).figures == {"tflite_bytes": 200.0}
    assert [one.questions for one in started] == [
        {"a000000": "float16", "a000001": "static_wi8_ai8"}
    ]


def test_what_was_expected_is_asked_once_and_may_be_asked_for_in_any_order(
    outliner: Outliner, plans: list[Plan], started: list[Answering]
) -> None:
    for plan in (*plans, *plans):
        outliner.expect(plan)
    assert len(started) == 1
    assert outliner.outline(plans[1]).figures == {"tflite_bytes": 200.0}
    assert outliner.outline(plans[0]).figures == {"tflite_bytes": 100.0}
    assert len(started[0].questions) == 2


def test_what_a_dead_process_was_to_work_out_is_asked_of_another(
    outliner: Outliner, plans: list[Plan], started: list[Answering]
) -> None:
    for plan in plans:
        outliner.expect(plan)
    started[0].dies = True
    assert outliner.outline(plans[0]).figures == {"tflite_bytes": 300.0}
    assert outliner.outline(plans[1]).figures == {"tflite_bytes": 400.0}  # that was lost, too
    assert [[*one.questions.values()] for one in started] == [[], ["float16", "static_wi8_ai8"]]


def test_a_process_that_dies_of_its_question_is_said_to_have_and_is_not_asked_it_again(
    outliner: Outliner, plans: list[Plan], started: list[Answering], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answering, "dies", True)
    gone = outliner.outline(plans[0])
    assert not gone.figures
    assert "has ended" in (gone.error or "")
    assert not gone.stage_failed
    processes = len(started)
    assert outliner.outline(plans[0]) == gone
    assert len(started) == processes
    monkeypatch.setattr(Answering, "dies", False)
    assert outliner.outline(plans[1]).figures
    assert len(started) == processes + 1


def test_what_somebody_waits_for_moves_up_unless_it_is_being_worked_out(
    outliner: Outliner, plans: list[Plan], started: list[Answering], tmp_path: Path
) -> None:
    for plan in plans:
        outliner.expect(plan)
    (folder,) = {one.parent for one in tmp_path.rglob("b*.question.json")}
    (folder / "b000000.question.json").rename(folder / "b000000.begun.json")
    (folder / "b000000.answer.json").write_text(json.dumps(to_plain(Outline(figures={"macs": 1}))))
    assert outliner.outline(plans[0]).figures == {"macs": 1}
    assert outliner.outline(plans[1]).figures == {"tflite_bytes": 200.0}
    assert started[0].questions == {"a000001": "static_wi8_ai8"}


def test_no_more_is_worked_out_ahead_than_a_few(
    outliner: Outliner, plans: list[Plan], tmp_path: Path, started: list[Answering]
) -> None:
    candidates = search(tmp_path, Asking(trials=1), FakeAttempt()).candidates
    shares = [round(0.1 * n, 1) for n in range(1, 10)]
    for share in shares:
        outliner.expect(candidates.plan({"prune.parameters": share}))
    waiting = len([*tmp_path.rglob("b*.question.json")])
    assert 1 <= waiting < len(shares)
    outliner.outline(plans[0])
    assert [*started[0].questions] == [f"a{waiting:06d}"]  # before what nobody waits for
    started[0].work()
    outliner.expect(candidates.plan({"prune.parameters": shares[-1]}))  # there is room again
    assert len([*tmp_path.rglob("b*.question.json")]) == waiting


def test_questions_are_answered_by_name_as_they_are_there_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[str]()

    def answer(begun: Path, *given: object) -> Outline:
        told.append(begun.name.partition(".")[0])
        if len(told) == 1:
            (tmp_path / "b2.question.json").rename(tmp_path / "a2.question.json")
        if len(told) == 3:
            (tmp_path / outlined.END).touch()
        return Outline(figures={"macs": float(len(told))})

    monkeypatch.setattr(outlined, "_answer", answer)
    for name in ("b0", "b1", "b2", "b3"):
        (tmp_path / f"{name}.question.json").touch()
    outlined.outline(OutlineJob(name="search", work=tmp_path, folder=tmp_path), quiet)
    assert told == ["b0", "a2", "b1"]
    answers = {
        one.name: json.loads(one.read_text())["figures"] for one in tmp_path.glob("*.answer*")
    }
    assert answers == {
        "b0.answer.json": {"macs": 1.0},
        "a2.answer.json": {"macs": 2.0},
        "b1.answer.json": {"macs": 3.0},
    }
