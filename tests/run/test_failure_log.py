"""What the runner says of files that only it knows."""

from __future__ import annotations

from pathlib import Path

from shrink.base.errors import ConversionError, ModelError
from shrink.run.supervisor import with_kept_log, with_names_of_the_user


def test_with_names_of_the_user_names_no_file_of_the_store() -> None:
    stored = "/cache/objects/f9/f9aa.tflite"
    error = ModelError(f"{stored} is bad", subject=stored, hint=f"look at {stored}")
    renamed = with_names_of_the_user(error, {stored: "/home/me/my.tflite"})
    assert str(renamed) == (
        "/home/me/my.tflite: /home/me/my.tflite is bad\n  hint: look at /home/me/my.tflite"
    )
    plain = with_names_of_the_user(ModelError("bad"), {stored: "x"})
    assert (plain.subject, plain.hint) == (None, None)


def test_with_kept_log_names_the_log_of_the_newest_twenty(tmp_path: Path) -> None:
    (tmp_path / "worker.log").write_text("all of it")
    for number in range(25):
        error = ConversionError("no", hint="give another")
        with_kept_log(error, tmp_path, tmp_path / "logs", f"q-{number:02d}")
    kept = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert len(kept) == 20
    assert (tmp_path / "logs" / "q-24.log").read_text() == "all of it"
    assert error.hint == f"give another (all that was said: {tmp_path}/logs/q-24.log)"
    without = with_kept_log(ConversionError("no"), tmp_path / "none", tmp_path / "logs", "x")
    assert without.hint is None
