"""The words of a command line, before and after they are parsed: what else people type; light."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

_MEANT = {
    "--lr": "--optimizer-learning-rate",
    "--learning-rate": "--optimizer-learning-rate",
    "--batch": "--global-batch-size",
    "--batch-size": "--global-batch-size",
    "--out": "--output",
    "--out-dir": "--output",
    "--output-dir": "--output",
}
"""What other tools call a flag, and what it is here."""


def without_values(words: Sequence[str], command: Callable[..., Any]) -> list[str]:
    """Return a command line in which switches have no value: `--aware false` is `--no-aware`.

    Args:
        words: of the command line.
        command: the command's function, from `with_flags` or any other.
    """
    switches: frozenset[str] = getattr(command, "switches", frozenset())
    found: list[str] = []
    for word in words:
        name, separator, value = word.partition("=")
        if word in ("true", "false") and found and found[-1] in switches:
            name, separator, value = found.pop(), "=", word
        if name in switches and separator and value in ("true", "false"):
            word = name if value == "true" else f"--no-{name[2:]}"
        found.append(word)
    return found


def meant(message: str) -> tuple[str, str | None]:
    """Return a parser's message about an unknown flag, and the flag that was meant, if known."""
    plain, _, _ = message.partition(" (Possible options")
    near = _MEANT.get(plain.rpartition(" ")[2]) if plain.startswith("No such option") else None
    return (plain, f"did you mean {near}?") if near else (message, None)
