"""`shrink cache`: lists, prunes and clears the cache."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from shrink.base import cache
from shrink.base.cache import ENTRY_KINDS, CacheKind, CacheSize, Entry, cache_root
from shrink.base.console import Console
from shrink.base.errors import RecipeError, ResourceError, hint_for
from shrink.base.fields import parse_bytes
from shrink.base.figures import format_value
from shrink.base.foreign import JsonObject
from shrink.cli.options import CheckedCommand, JsonFlag, QuietFlag
from shrink.run.store import Store
from shrink.tools.show import show_cache, show_cache_entries

if TYPE_CHECKING:
    from collections.abc import Sequence


_UNITS_S = {"h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
DryRemovalFlag = Annotated[
    bool, typer.Option("--dry-run", help="Only print what would be removed.")
]


def command(name: str, words: Sequence[str]) -> typer.Typer:
    """Return the group of commands."""
    group = typer.Typer(invoke_without_command=True)
    group.callback()(size)
    group.command("list", cls=CheckedCommand)(list_)
    group.command("prune", cls=CheckedCommand)(prune)
    group.command("clear", cls=CheckedCommand)(clear)
    return group


def size(context: typer.Context, json_: JsonFlag = False, quiet: QuietFlag = False) -> None:
    """Show what the cache holds: entries, bytes and age by kind."""

    if (command := context.invoked_subcommand) is not None:
        for flag, given in (("--json", json_), ("--quiet", quiet)):
            if given:
                raise RecipeError(
                    f"has no effect before {command}",
                    subject=flag,
                    hint=f"write it after the command: shrink cache {command} {flag}",
                )
        return
    root, console = cache_root(), Console(as_json=json_, quiet=quiet)
    entries = cache.entries(root)
    kinds = tuple(
        CacheKind(
            kind=kind,
            holds=about.holds,
            entries=len(of_kind),
            bytes=cache.bytes_of(entry.path for entry in of_kind),
            unused_s=round(of_kind[0].unused_s),
            kept_days=about.days,
        )
        for kind, about in cache.ENTRY_KINDS.items()
        if (of_kind := [entry for entry in entries if entry.kind == kind])
    )
    size = CacheSize(str(root), cache.total_bytes(root), cache.limit_bytes(root), kinds)
    if json_:
        console.document(asdict(size))
    elif not quiet:
        show_cache(size, console.rich())


def list_(
    kinds: Annotated[list[str] | None, typer.Argument(metavar="[KIND]...")] = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """List entries, the longest unused first."""

    console = Console(as_json=json_, quiet=quiet)
    chosen = cache.entries(cache_root(), _kinds(kinds))
    if json_:
        console.document({"path": str(cache_root()), "entries": [*map(_plain, chosen)]})
    elif not quiet:
        show_cache_entries(chosen, console.rich())


def prune(
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Remove entries unused for longer than this: 12h, 30d.",
        ),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option(
            "--max-size",
            metavar="SIZE",
            help="Then remove the least recently used entries until the cache has this size: 5GB.",
        ),
    ] = None,
    dry_run: DryRemovalFlag = False,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Remove old entries; without options as runs do by themselves."""

    root = cache_root()
    try:
        most = cache.limit_bytes(root) if max_size is None else parse_bytes(max_size)
    except ValueError as error:
        raise RecipeError(str(error), subject="--max-size", hint="such as 5GB") from error
    unused_s = None if older_than is None else _seconds(older_than)
    going = cache.outdated(root, unused_s=unused_s, most_bytes=most)
    _remove(going, dry_run=dry_run, json_=json_, quiet=quiet)


def clear(
    kinds: Annotated[list[str] | None, typer.Argument(metavar="[KIND]...")] = None,
    dry_run: DryRemovalFlag = False,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Remove all entries, or all of some kinds; run folders stay."""

    going = cache.entries(cache_root(), _kinds(kinds))
    _remove(going, dry_run=dry_run, json_=json_, quiet=quiet)


def _remove(going: Sequence[Entry], *, dry_run: bool, json_: bool, quiet: bool) -> None:

    root, console = cache_root(), Console(as_json=json_, quiet=quiet)
    try:
        with Store(root, console.warn).alone():
            freed = cache.freed_bytes(root, going) if dry_run else cache.remove(root, going)
    except BlockingIOError as error:
        raise ResourceError(
            "a run uses the cache", subject=root, hint="try again when it has ended"
        ) from error
    if json_:
        entries = [*map(_plain, going)]
        console.document({"path": str(root), "freed_bytes": freed, "entries": entries})
    elif not quiet:
        done = "would be removed" if dry_run else "removed"
        freed_text = format_value(freed, "bytes")
        console.print(f"{len(going):,} entries {done}, {freed_text} of {root}")


def _plain(entry: Entry) -> JsonObject:
    return {
        "kind": entry.kind,
        "key": entry.path.stem,
        "bytes": entry.bytes,
        "unused_s": round(entry.unused_s),
    }


def _kinds(named: Sequence[str] | None) -> tuple[str, ...]:

    for name in named or ():
        if name not in ENTRY_KINDS:
            hint = hint_for(name, ENTRY_KINDS)
            raise RecipeError(f"unknown kind of entry: {name!r}", subject="KIND", hint=hint)
    return tuple(named or ENTRY_KINDS)


def _seconds(age: str) -> float:

    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([hdw])", age.strip())
    if match is None:
        raise RecipeError(
            f"invalid age: {age!r}", subject="--older-than", hint="such as 12h, 30d, 4w"
        )
    return float(match[1]) * _UNITS_S[match[2]]
