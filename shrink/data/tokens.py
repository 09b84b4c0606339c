"""Tokenization: splitting, vocabulary, and arrays of one length."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError
from shrink.base.foreign import Json
from shrink.data.token_config import TokensConfig

_WORDS = re.compile(r"\w+|[^\w\s]")
_SPLITTERS: Mapping[str, Callable[[str], list[str]]] = {
    "words": _WORDS.findall,
    "whitespace": str.split,
    # A file of tokens has one on each line, so that none can be the end of a line.
    "characters": lambda text: [" " if one.isspace() else one for one in text],
}


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id.

    Attributes:
        tokens: each once, at the place of its id.
        config: how texts are split, and which tokens stand for padding and unknown ones.
    """

    tokens: tuple[str, ...]
    config: TokensConfig

    def front_end(self) -> dict[str, Json]:
        """Return what an application must know to make the model's input of a text."""
        told = self.config.model_dump(include={"length", "lower", "split", "padding", "unknown"})
        return {
            **told,
            "padding_id": self.tokens.index(self.config.padding),
            "unknown_id": self.tokens.index(self.config.unknown),
            "vocabulary": list(self.tokens),
        }


def tokens_of(text: str, config: TokensConfig) -> list[str]:
    """Return a text's tokens, in order; there may be none."""
    return _SPLITTERS[config.split](text.lower() if config.lower else text)


def learn(texts: Iterable[str], config: TokensConfig) -> Vocabulary:
    """Return the vocabulary of some texts: the most frequent tokens first, equals by their text.

    Args:
        texts: of the training split, and of no other.
        config: its `size` and `min_count` say which tokens are in it.
    """
    counts = Counter(token for text in texts for token in tokens_of(text, config))
    special = (config.padding, config.unknown)
    ranked = sorted(
        (token for token, count in counts.items() if count >= config.min_count),
        key=lambda token: (-counts[token], token),
    )
    kept = [token for token in ranked if token not in special]
    return Vocabulary((*special, *kept[: config.size - len(special)]), config)


def read_vocabulary(path: Path, config: TokensConfig) -> Vocabulary:
    """Return the vocabulary of a file: a token a line, whose number from 0 is its id.

    Raises:
        DataError: it cannot be read, has an empty line or a token twice, or lacks the tokens of
            padding and of what is unknown.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"the vocabulary cannot be read: {error}",
            subject=path,
            hint="data.tokens.vocabulary names a UTF-8 file with a token on each line",
        ) from error
    tokens = [line.removesuffix("\r") for line in lines]
    if tokens and not tokens[-1]:
        tokens.pop()
    first: dict[str, int] = {}
    for number, token in enumerate(tokens, start=1):
        if not token:
            raise DataError(f"line {number} is empty", subject=path, hint="a token on each line")
        if first.setdefault(token, number) != number:
            raise DataError(
                f"line {number} has {token!r}, and so has line {first[token]}",
                subject=path,
                hint="each token needs one id: remove a line",
            )
    for key, token in (("padding", config.padding), ("unknown", config.unknown)):
        if token not in first:
            raise DataError(
                f"no line is {token!r}, the token of data.tokens.{key}",
                subject=path,
                hint=f"add the line, or name the file's own in data.tokens.{key}",
            )
    return Vocabulary(tuple(tokens), config)


@dataclass(frozen=True)
class Encoded:
    """Texts as ids.

    Attributes:
        ids: int32 (n, length).
        tokens: how many each text has, those that were cut off not counted, (n,).
        unknown: how many of these the vocabulary lacks, (n,).
        cut: whether a text was longer, (n,).
    """

    ids: np.ndarray
    tokens: np.ndarray
    unknown: np.ndarray
    cut: np.ndarray

    def unknown_share(self, rows: np.ndarray) -> float:
        """Return the unknown tokens of some texts as a fraction of all that these have."""
        return int(self.unknown[rows].sum()) / max(int(self.tokens[rows].sum()), 1)


def encode(texts: Sequence[str], vocabulary: Vocabulary) -> Encoded:
    """Return texts as ids of one length, cut or padded behind."""
    config = vocabulary.config
    number = {token: index for index, token in enumerate(vocabulary.tokens)}
    other = number[config.unknown]
    ids = np.full((len(texts), config.length), number[config.padding], np.int32)
    tokens, unknown = np.zeros((2, len(texts)), np.int64)
    cut = np.zeros(len(texts), bool)
    for row, text in enumerate(texts):
        every = tokens_of(text, config)
        cut[row] = len(every) > config.length
        found = [number.get(token) for token in every[: config.length]]
        tokens[row], unknown[row] = len(found), found.count(None)
        ids[row, : len(found)] = [other if index is None else index for index in found]
    return Encoded(ids, tokens, unknown, cut)
