"""Commands as they are run here and now: services found where they are, own programs found without an image. Pure."""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def filled(argv: tuple[str, ...], words: Mapping[str, str]) -> tuple[str, ...]:
    """Return `argv` with each placeholder of `words` (such as ``{mariadb.port}``) replaced by what stands for it."""
    result = []
    for word in argv:
        text = word
        for placeholder, value in words.items():
            text = text.replace(placeholder, value)
        result.append(text)
    return tuple(result)


def on_host(argv: tuple[str, ...], programs: Mapping[str, str]) -> tuple[str, ...]:
    """Return `argv` as it is run where there is no image: one of our own `programs` is a file below ``dockerfiles``.

    A Python program is run by this interpreter, anything else by the shell, for which it was written.
    """
    if argv[0] not in programs:
        return argv
    path = str(files("dockerfiles") / programs[argv[0]])
    return (sys.executable if path.endswith(".py") else "/bin/sh", path, *argv[1:])
