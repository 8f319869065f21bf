"""Options that are declared on the fields of a Struct, from which argparse gets its arguments.

A field ``lease_s: Annotated[float, Option("--lease TIME", "how long ...", type=duration)] = 15.0`` is an option.
`add_options` adds it to a parser; `bench_common.cli.read_options` makes the Struct of what the parser found.
"""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct

from bench_common.argument_types import file_name


class Option:
    """The option or positional argument of a field.

    `spelling` is as help shows it: ``-n, --command-name NAME``, without a flag a positional argument. Two names of
    values are two values. `settings` are further ones of `add_argument`. The field's type says that a bool is a
    switch, a tuple repeatable, a `Path` the name of a file, and a `Literal` a choice. A function in them has a name:
    a lambda within an annotation does not see the names of its module.
    """

    def __init__(self, spelling: str, text: str, **settings: Any) -> None:
        words = spelling.split()
        self.flags = [word.rstrip(",") for word in words if word.startswith("-")]
        values = tuple(word for word in words if not word.startswith("-"))
        self._settings: dict[str, Any] = {"help": text}
        if values:
            self._settings |= {"metavar": values, "nargs": len(values)} if values[1:] else {"metavar": values[0]}
        self._settings |= settings

    def add_to(self, where: argparse._ActionsContainer, field: str, hint: Any, default: Any) -> None:
        """Add the argument."""
        settings = {"default": _default(hint, default), **_of_type(hint), **self._settings}
        if settings.get("action") == "append" and "nargs" in settings:
            settings["action"] = "extend"
        if self.flags:
            where.add_argument(*self.flags, dest=field, **settings)
        else:
            settings.pop("action", None)
            where.add_argument(field, **settings)


def _default(hint: Any, default: Any) -> Any:
    if default is NODEFAULT:
        plain = plain_type(hint)
        return [] if get_origin(plain) is tuple else False if plain is bool else None
    return default.factory() if hasattr(default, "factory") else list(default) if type(default) is tuple else default


def plain_type(hint: Any) -> Any:
    """Return a type without its annotations, and without None."""
    if hasattr(hint, "__metadata__"):
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        return next(one for one in get_args(hint) if one is not NoneType)
    return hint


def _of_type(hint: Any) -> dict[str, Any]:
    """Return what a type says of an argument."""
    plain = plain_type(hint)
    if plain is bool:
        return {"action": "store_true"}
    if get_origin(plain) is tuple:
        return {"action": "append", **_of_type(get_args(plain)[0])}
    if get_origin(plain) is Literal:
        return {"choices": get_args(plain)}
    return {"type": file_name} if plain is Path else {}


class Heading(str):
    """The heading, in help, of a field's option and those that follow it, or of the options of a Struct alone."""

    __slots__ = ()


@cache
def hints_of(kind: type[Struct]) -> dict[str, Any]:
    """Return the types of a Struct's fields with their Options, which take milliseconds to evaluate."""
    return get_type_hints(kind, include_extras=True)


def options_of(hint: Any) -> list[Option]:
    """Return the Options of a field with this type: one, none, or several ways to say the same."""
    return [one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Option)]


def add_options(
    where: argparse._ActionsContainer, kind: type[Struct], /, *names: str, **instead: Option | None
) -> None:
    """Add the argument of each field that has an `Option`, in order; of the fields `names` alone if there are any.

    A field that is a Struct stands for its fields, unless it has an `add_arguments` that adds what it reads.
    `instead` has Options in the place of a field's own, None to leave a field out.
    """
    hints, top = hints_of(kind), where
    defaults = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
    for name in names or kind.__struct_fields__:
        hint, below = hints[name], where
        for heading in getattr(hint, "__metadata__", ()):
            if isinstance(heading, Heading):
                below = top.add_argument_group(heading)
        plain, options = plain_type(hint), [instead[name]] if name in instead else options_of(hint)
        if options:
            where = below
            for option in filter(None, options):
                option.add_to(below, name, hint, defaults.get(name, NODEFAULT))
        elif hasattr(plain, "add_arguments"):
            plain.add_arguments(below, **instead)
        elif isinstance(plain, type) and issubclass(plain, Struct):
            add_options(below, plain, **instead)
