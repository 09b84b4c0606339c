"""Near misses: which known word did somebody mean?"""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST_WORD = 100
_MOST_LISTED = 12


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate nearest to `word`, or None where none is near.

    Case does not count, and underscores and hyphens are equal. The measure is difflib's ratio
    (Ratcliff & Obershelp 1988), at least 0.6.
    """
    # Imported late: difflib costs every command 10 ms, and only mistakes need it.
    from difflib import get_close_matches

    if len(word) > _LONGEST_WORD:  # its time is quadratic, and no known word is as long
        return None
    known: dict[str, str] = {}
    for candidate in candidates:
        known.setdefault(_folded(candidate), candidate)
    near = get_close_matches(_folded(word), known, n=1)
    return known[near[0]] if near else None


def near_file(name: str, beside: Iterable[str]) -> str | None:
    """Return the file that `name` is likely meant for, or None where none is near.

    Endings do not count, by which any two model files look alike; between files that differ in
    nothing else they decide.
    """
    by_stem: dict[str, list[str]] = {}
    for one in beside:
        by_stem.setdefault(_stem(one), []).append(one)
    stem = did_you_mean(_stem(name), by_stem)
    if stem is None:
        return None
    return did_you_mean(name, by_stem[stem]) or by_stem[stem][0]


def _stem(name: str) -> str:
    return name.rpartition(".")[0] or name


def hint_for(word: str, candidates: Iterable[str]) -> str:
    """Return `did you mean X?`, or what there is to choose from; empty if there is nothing."""
    names = list(dict.fromkeys(candidates))
    near = did_you_mean(word, names)
    if near is not None:
        return f"did you mean {near}?"
    if not names:
        return ""
    rest = len(names) - _MOST_LISTED
    listed = ", ".join(sorted(names)[:_MOST_LISTED])
    return f"choose one of {listed}" + (f" and {rest} more" if rest > 0 else "")


def _folded(word: str) -> str:
    return word.casefold().replace("_", "-")
