"""Settings of tokenization; imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from shrink.base.fields import Config, Count

LEARNED = ("vocabulary", "size", "min_count")
"""Keys that decide the tokens, where the tokens themselves are not known."""
Token = Annotated[str, Field(min_length=1, pattern=r"^[^\r\n]+$")]


class TokensConfig(Config):
    """How a text becomes the model's input; what stands here is kept beside the artifact.

    A text is lowered, split, looked up in the vocabulary, cut or padded to `length`.
    """

    length: Count = 32
    """Ids of an example: longer texts lose their end, shorter ones are padded behind."""
    lower: bool = True
    """Whether letters become small ones first."""
    split: Literal["words", "whitespace", "characters"] = "words"
    """words: runs of letters, digits and underscores, and every other sign that is no space, on its
    own; whitespace: what stands between spaces; characters: each character, any white
    space as a space."""
    vocabulary: Annotated[str, Field(min_length=1)] | None = None
    """A text file, UTF-8, with a token on each line, whose number from 0 is its id; relative to the
    recipe. By default it is learned from the training split."""
    size: Annotated[int, Field(ge=3)] = 10_000
    """Of a learned vocabulary: the most tokens, padding and unknown ones included; the most
    frequent stay."""
    min_count: Count = 1
    """Of a learned vocabulary: how often the training split must have a token."""
    padding: Token = "[PAD]"
    """The token behind the end of a text; id 0 of a learned vocabulary."""
    unknown: Token = "[UNK]"
    """The token for what the vocabulary lacks; id 1 of a learned vocabulary."""

    @model_validator(mode="after")
    def _check(self) -> TokensConfig:
        if self.padding == self.unknown:
            raise ValueError("padding and unknown are two tokens: give them different names")
        fields = type(self).model_fields
        learned = [k for k in ("min_count", "size") if getattr(self, k) != fields[k].default]
        if self.vocabulary is not None and learned:
            raise ValueError(
                f"{' and '.join(learned)} applies to a learned vocabulary, but vocabulary "
                "names a file"
            )
        return self

    def vocabulary_file(self, folder: Path) -> Path | None:
        """Return the vocabulary's file, if one is named; a relative path starts from `folder`."""
        if self.vocabulary is None:
            return None
        return (folder / Path(self.vocabulary).expanduser()).resolve()
