"""Types of command-line arguments that both programs take, so that what is refused by one is refused by the other.

A value that the other side would drop in silence (a port that wraps round, a name longer than a message may carry) is
refused here, before anything is started.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Final

MAX_NAME: Final = 128
"""The longest name of a worker or an environment, in characters: what a message may carry."""
MAX_SLOTS: Final = 65536
"""The most jobs that one worker may have in flight."""
MAX_SEED: Final = 2**53
"""The largest seed: whole numbers up to here survive every reader of JSON."""
NAME_PATTERN: Final = rf"^[A-Za-z0-9][A-Za-z0-9_.+-]{{0,{MAX_NAME - 1}}}$"
"""What a worker or an environment may be called, as a regular expression that ECMA-262 and Python read alike."""


def whole_number(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return a type of arguments: whole numbers from `low` to `high` (None: without limit)."""
    wanted = f"a whole number from {low} on" if high is None else f"a whole number from {low} to {high}"

    def parse(text: str) -> int:
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
        if number is None or number < low or (high is not None and number > high):
            raise argparse.ArgumentTypeError(f"{text!r}: expected {wanted}")
        return number

    return parse


port: Final = whole_number(1, 65535)
"""A type of arguments: a TCP port."""


def seconds(text: str) -> float:
    """Return `text` as a number of seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not isfinite(number) or number < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of seconds, 0 or more")
    return number


def file_name(text: str) -> Path:
    """Return `text` as a path; nothing at all names no file (and would be taken for the working directory)."""
    if not text:
        raise argparse.ArgumentTypeError("'': expected a file's name, and it is empty")
    return Path(text)


def name(text: str) -> str:
    """Return `text` if a worker or an environment can be called so."""
    if re.fullmatch(NAME_PATTERN, text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a word of letters, digits and _ . + -, of at most {MAX_NAME} characters"
        )
    return text
