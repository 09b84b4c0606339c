"""Splitting, learning and looking up, against what the definitions say of small texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.feature_extraction.text import CountVectorizer

from recipes.data.sentences import make_sentences
from shrink.data.config import TokensConfig
from shrink.data.sources.text import encode, learn, read_vocabulary, tokens_of


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["don", "'", "t", "stop", ",", "straße", "7"]),
        ({"lower": False}, ["Don", "'", "t", "stop", ",", "Straße", "7"]),
        ({"split": "whitespace"}, ["don't", "stop,", "straße", "7"]),
        ({"split": "characters"}, list("don't  stop, straße 7")),
    ],
)
def test_tokens_of_splits_as_the_settings_say(
    settings: dict[str, Any], expected: list[str]
) -> None:
    assert tokens_of("Don't  stop, Straße 7", TokensConfig.model_validate(settings)) == expected


def test_learn_keeps_the_most_frequent_and_equals_by_their_text() -> None:
    texts = ["b a", "b c", "d [PAD]"]
    every = learn(texts, TokensConfig(split="whitespace", lower=False)).tokens
    assert every == ("[PAD]", "[UNK]", "b", "a", "c", "d")
    assert learn(texts, TokensConfig(split="whitespace", lower=False, size=4)).tokens[2:] == (
        "b",
        "a",
    )
    assert learn(texts, TokensConfig(split="whitespace", min_count=2)).tokens[2:] == ("b",)


@pytest.mark.parametrize("split", ["words", "whitespace", "characters"])
def test_a_file_of_the_tokens_has_each_on_its_line(split: str, tmp_path: Path) -> None:
    config = TokensConfig.model_validate({"split": split})
    texts = ["turn on\nnow\n", "off\r\n", "a\tb\u2028c\x85d\x0be"]
    learned = learn(texts, config)
    path = tmp_path / "vocabulary.txt"
    path.write_text("".join(f"{token}\n" for token in learned.tokens), encoding="utf-8")
    assert read_vocabulary(path, config).tokens == learned.tokens
    assert path.read_text(encoding="utf-8").splitlines() == list(learned.tokens)


def test_encode_cuts_pads_and_counts() -> None:
    config = TokensConfig(length=3)
    found = encode(["a b", "c a a a", ""], learn(["a b", "a"], config))
    np.testing.assert_array_equal(found.ids, [[2, 3, 0], [1, 2, 2], [0, 0, 0]])
    assert [int(v.sum()) for v in (found.tokens, found.unknown, found.cut)] == [5, 1, 1]


def test_encode_counts_tokens_as_scikit_learn_does() -> None:
    texts = make_sentences("test", 60).texts
    vocabulary = learn(make_sentences("train", 400).texts, TokensConfig(length=40))
    known = list(vocabulary.tokens[2:])
    counted = CountVectorizer(token_pattern=r"\w+", vocabulary=known).transform(texts).toarray()
    ids = encode(texts, vocabulary).ids
    own = np.stack([np.bincount(row, minlength=len(known) + 2)[2:] for row in ids])
    np.testing.assert_array_equal(own, counted)


def test_read_vocabulary_takes_lines_of_either_ending(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_bytes("a\r\n[PAD]\r\n[UNK]\r\n é\r\n".encode())
    vocabulary = read_vocabulary(tmp_path / "v.txt", TokensConfig())
    assert vocabulary.tokens == ("a", "[PAD]", "[UNK]", " é")
    told = vocabulary.front_end()
    assert (told["padding_id"], told["unknown_id"], told["length"]) == (1, 2, 32)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"padding": "x", "unknown": "x"}, "different names"),
        ({"vocabulary": "v.txt", "size": 9}, "size applies to a learned vocabulary"),
        ({"size": 2}, "greater than or equal to 3"),
        ({"padding": "a\nb"}, "pattern"),
    ],
)
def test_tokens_config_refuses_what_contradicts_itself(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        TokensConfig.model_validate(settings)
