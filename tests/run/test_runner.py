"""What the runner says of files that only it knows."""

from __future__ import annotations

from shrink.errors import ModelError
from shrink.run.runner import with_names_of_the_user


def test_with_names_of_the_user_names_no_file_of_the_store() -> None:
    stored = "/cache/objects/f9/f9aa.tflite"
    error = ModelError(f"{stored} is bad", subject=stored, hint=f"look at {stored}")
    renamed = with_names_of_the_user(error, {stored: "/home/me/my.tflite"})
    assert str(renamed) == (
        "/home/me/my.tflite: /home/me/my.tflite is bad\n  hint: look at /home/me/my.tflite"
    )
    plain = with_names_of_the_user(ModelError("bad"), {stored: "x"})
    assert (plain.subject, plain.hint) == (None, None)
