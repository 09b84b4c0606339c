"""Flags made from configuration sections: every key of a section is a `--kebab-case` flag."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from shrink.base.fields import NameIn, parse_bytes, parse_memory

T = TypeVar("T")
Flags = dict[tuple[str, ...], str]
"""What was typed, by the keys that flags set."""
_HIDDEN_KEYS = {"name", "from_", "training"}
_SWITCH = "true|false"


@dataclass(frozen=True)
class Flag:
    """A flag, under one or several names, and the key of a section that it sets.

    Attributes:
        parameter: name of the command's parameter.
        options: the names, such as `--image-size` and `--data-image-size`.
        keys: path of the key.
        help: the key's description.
        metavar: what stands for the value.
        is_list: whether `a,b` means two values.
        is_switch: whether it takes no value: `--aware` or `--no-aware`.
    """

    parameter: str
    options: tuple[str, ...]
    keys: tuple[str, ...]
    help: str
    metavar: str
    is_list: bool = False
    is_switch: bool = False

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that its metavar lists; none where it may be anything."""
        listed = self.metavar.split("|")
        names = tuple(one for one in listed if one not in ("N", "SIZE", "VALUE"))
        return () if self.is_switch or len(listed) == 1 else names

    def complete(self, incomplete: str) -> list[str]:
        """Return the choices that begin so."""
        return [choice for choice in self.choices if choice.startswith(incomplete)]

    @property
    def declared(self) -> tuple[str, ...]:
        """The names as Typer takes them, those of a switch with what turns it off."""
        if not self.is_switch:
            return self.options
        return tuple(f"{option}/--no-{option[2:]}" for option in self.options)


def flags_of(
    section: type[BaseModel], prefix: tuple[str, ...] = (), skip: Sequence[str] = ()
) -> list[Flag]:
    """Return a flag for every key of a section; nested sections are joined with hyphens."""
    flags: list[Flag] = []
    for name, field in section.model_fields.items():
        if (not prefix and name in _HIDDEN_KEYS) or name in skip:
            continue
        keys = (*prefix, name)
        annotation = field.annotation
        members = [m for m in get_args(annotation) or (annotation,) if m is not type(None)]
        only = members[0] if len(members) == 1 else None
        if (
            nested := (only if isinstance(only, type) and issubclass(only, BaseModel) else None)
        ) is not None:
            flags.extend(flags_of(nested, keys))
            continue
        flags.append(flag_of("_".join(keys), keys, field))
    return flags


def flag_of(name: str, keys: tuple[str, ...], field: FieldInfo) -> Flag:
    """Return the flag of a field.

    Args:
        name: of the command's parameter; `--name` with hyphens is the flag.
        keys: path of the key that it sets.
        field: the key.
    """
    return Flag(
        name,
        (_option((name,)),),
        keys,
        _help(field),
        _metavar(field),
        _is_list(field.annotation),
        {*_alternatives(field.annotation)} == {_SWITCH},
    )


def section_flags(name: str, flags: Sequence[Flag], taken: Sequence[Flag]) -> list[Flag]:
    """Return the flags of another section: `--data-image-size`, and `--image-size` where free.

    Args:
        name: of the section.
        flags: of its keys.
        taken: flags whose names are no longer free.
    """
    used = {option for flag in taken for option in flag.options}
    return [
        replace(
            flag,
            parameter=f"{name}_{flag.parameter}",
            options=(*(set(flag.options) - used), _option((name, *flag.keys))),
            keys=(name, *flag.keys),
        )
        for flag in flags
    ]


def _option(keys: Sequence[str]) -> str:
    return "--" + "-".join(keys).replace("_", "-")


def _is_list(annotation: object) -> bool:
    if get_origin(annotation) in (typing.Union, types.UnionType, Annotated):
        return any(_is_list(member) for member in get_args(annotation))
    return get_origin(annotation) is tuple


def with_flags(
    function: Callable[..., None],
    flags: Sequence[Flag],
    shown: Collection[str] | None = None,
    common: type[T] | None = None,
) -> Callable[..., None]:
    """Return `function` with one option per flag; it is given them as `flags={keys: text}`.

    Typer reads a command's options from its signature, so the signature is what is built here.

    Args:
        function: a command.
        flags: its options.
        shown: parameters of those that `--help` lists; None for all.
        common: a dataclass of options, which `function` takes as its parameter `common`.
    """
    shared = (
        [] if common is None else [*inspect.signature(common, eval_str=True).parameters.values()]
    )
    own = list[inspect.Parameter]()
    for one in inspect.signature(function, eval_str=True).parameters.values():
        own += [] if one.name == "flags" else shared if one.name == "common" else [one]
    added = [
        inspect.Parameter(
            flag.parameter,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                bool | None if flag.is_switch else str | None,
                typer.Option(
                    *flag.declared,
                    help=flag.help,
                    metavar=None if flag.is_switch else flag.metavar,
                    autocompletion=flag.complete if flag.choices else None,
                    show_default=False,
                    hidden=shown is not None and flag.parameter not in shown,
                ),
            ],
        )
        for flag in flags
    ]

    def command(**arguments: Any) -> None:
        values = {flag: arguments.pop(flag.parameter) for flag in flags}
        chosen = {
            flag.keys: _bracketed(_text(value)) if flag.is_list else _text(value)
            for flag, value in values.items()
            if value is not None
        }
        if common is not None:
            arguments["common"] = common(**{one.name: arguments.pop(one.name) for one in shared})
        function(**arguments, flags=chosen)

    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    command.__signature__ = inspect.Signature([*keyword, *added])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in [*keyword, *added]}
    return command


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value).lower()


def _bracketed(text: str) -> str:
    """Return `a,b` as the list that a recipe writes `[a, b]`."""
    return text if text.lstrip().startswith("[") else f"[{text}]"


def _help(field: FieldInfo) -> str:
    text = (field.description or "").strip()
    if field.is_required():
        return text
    default = field.get_default(call_default_factory=True, validated_data={})
    if default in (None, (), [], {}) or isinstance(default, BaseModel):
        return text
    shown = str(default).lower() if isinstance(default, bool) else default
    return f"{text} [default: {shown}]"


def _metavar(field: FieldInfo) -> str:
    for one in field.metadata:
        if isinstance(one, NameIn):
            return "|".join([*one.names, *one.aliases])
    return "|".join(dict.fromkeys(_alternatives(field.annotation))) or "VALUE"


def _alternatives(annotation: object) -> Iterator[str]:
    origin = get_origin(annotation)
    if origin is Literal:
        yield from (str(value) for value in get_args(annotation))
    elif origin in (typing.Union, types.UnionType):
        for member in get_args(annotation):
            yield from _alternatives(member)
    elif origin is Annotated:
        plain, *validators = get_args(annotation)
        is_size = any(
            getattr(one, "func", None) in (parse_bytes, parse_memory) for one in validators
        )
        yield from ["SIZE"] if is_size else _alternatives(plain)
    elif annotation is bool:
        yield _SWITCH
    elif annotation in (int, float):
        yield "N"
    elif annotation is not type(None):
        yield "VALUE"
