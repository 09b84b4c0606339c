"""Fields of protocol buffers, by the examples of https://protobuf.dev/programming-guides/encoding."""

from __future__ import annotations

import pytest

from shrink.base.file_kinds import fields, messages, text, varint


def test_fields_are_those_of_the_published_examples() -> None:
    assert varint(memoryview(b"\x96\x01"), 0) == (150, 2)
    assert list(fields(memoryview(b"\x08\x96\x01"))) == [(1, 150)]
    named = memoryview(b"\x12\x07testing")
    assert text(named, 2) == "testing"
    (nested,) = messages(memoryview(b"\x1a\x09" + named), 3)
    assert text(nested, 2) == "testing"
    assert text(nested, 1) == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x96", "truncated"),
        (b"\x12\x08testing", "truncated"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "too long"),
        (b"\x0e", "wire type 6"),
    ],
)
def test_what_is_no_message_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        list(fields(memoryview(content)))
