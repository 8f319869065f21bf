"""A value that never shows what it holds: not in a message, a log, an error, a file or a traceback."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, NoReturn

MASK: Final = "***"
"""What is shown of a secret."""


class Secret:
    """A password, key or token. Only `reveal` returns it; it cannot be pickled or encoded."""

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        self._value = value

    def reveal(self) -> str:
        """Return it, for the one request that needs it."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return MASK if self._value else "''"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is written nowhere")


NO_SECRET: Final = Secret()
_FLAG: Final = re.compile(r"-[KT]|--(?:key|auth-token|os[-_][a-z_-]*(?:password|token|secret))")
"""Options whose value is a secret."""
_ATTACHED: Final = re.compile(rf"(?:-[KT]|(?:{_FLAG.pattern})=)(?P<value>.+)", re.DOTALL)


def secret_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the values of options that are secrets, whether they stand behind the option or are attached to it."""
    for option, word in pairwise(("", *arguments)):
        if _FLAG.fullmatch(option) and word:
            yield word
        elif attached := _ATTACHED.fullmatch(word):
            yield attached["value"]


def hide_arguments(arguments: Sequence[str]) -> None:
    """Have the system show no secret among this process's arguments; call it first, as modules take time to load."""
    if found := sorted(secret_arguments(arguments), key=len, reverse=True):
        hide_from_system(found)


def hide_from_system(secrets: Iterable[str], process: Path = Path("/proc/self")) -> None:
    """Overwrite secrets in the memory that the system shows as this process's arguments (`ps`), where it can be."""
    # proc(5): fields 48 and 49 of stat, counted from 1, are arg_start and arg_end; the name before may have spaces.
    with suppress(OSError, ValueError, IndexError):
        words = (process / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
        start, end = int(words[45]), int(words[46])
        with (process / "mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            text = memory.read(end - start)
            for secret in secrets:
                encoded = secret.encode("utf-8", "surrogateescape")
                text = text.replace(encoded, b"*" * len(encoded))
            memory.seek(start)
            memory.write(text)
