"""Every error that a user can meet, in one small tree, each with the exit code it leads to.

::

    WeighbridgeError
    ├── UsageError              2   a command line, or a file that the user named, is wrong
    │   └── ScenarioError       2   a scenario has problems; carries all of them
    ├── InfrastructureError     3   something that a run stands on is missing or broke
    │   ├── EngineUnavailable   3   an engine cannot be used on this machine
    │   ├── StatsFileError      3   a stats file cannot be read or written
    │   │   └── NotAStatsFile   2   the file that the user named is missing, or is something else
    │   └── ProtocolError       3   a message breaks the contract of the wire
    └── ParseError              2   a tool's output is not what its parser knows
        └── NoRun               2   a tool's output that is known, and measured nothing or something else
"""

from __future__ import annotations

from difflib import get_close_matches
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from bench_common.safe_text import one_line, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable


class ExitCode(IntEnum):
    """What a command's exit status says; a regression and broken infrastructure never share a code."""

    OK = 0
    THRESHOLD = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    INCONCLUSIVE = 4
    """A gate could not be judged."""
    INTERRUPTED = 130

    @classmethod
    def gravest(cls, codes: Iterable[int]) -> ExitCode:
        """Return the code that takes precedence: 130, 2, 1, 3, 4, 0 in this order; 0 without any."""
        given = {*codes, cls.OK}
        order = (cls.INTERRUPTED, cls.USAGE, cls.THRESHOLD, cls.INFRASTRUCTURE, cls.INCONCLUSIVE, cls.OK)
        return next(code for code in order if code in given)


class WeighbridgeError(Exception):
    """Base of every error whose message is meant for the user; `exit_code` is the command's status.

    Each of the `details` is told below the message, on a line of its own.
    """

    exit_code = ExitCode.INFRASTRUCTURE

    def __init__(self, message: str = "", *details: str) -> None:
        super().__init__("\n".join([message, *(f"  {detail}" for detail in details)]))
        self.message = message
        self.details = details


class UsageError(WeighbridgeError):
    """A command line or a named file is wrong; the message says where, what was expected and what to do."""

    exit_code = ExitCode.USAGE


class Problem(NamedTuple):
    """One thing that is wrong with a scenario, at a place: 1-based `line` and `column` of `file`.

    What came from the command line has no lines: `file` is then the argument itself and `line` is 0.
    """

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return one_line(f"{place}: {self.message}")


class ScenarioError(UsageError):
    """A scenario cannot be used; `problems` holds everything that is wrong with it, in file order."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(sorted(problems))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class InfrastructureError(WeighbridgeError):
    """Something that a run stands on (engine, host, socket, disk) is missing or broke."""


class EngineUnavailable(InfrastructureError):
    """An engine cannot be used on this machine; the message says why and what to install or start."""


class StatsFileError(InfrastructureError):
    """A stats file cannot be read or written; the message names the file and the byte offset."""


class DiskFullError(StatsFileError):
    """A stats file found no room on its disk: what could not be written is kept, and the next flush tries again."""

    def __init__(self, message: str, reason: str, free_bytes: int | None) -> None:
        super().__init__(message)
        self.reason = reason
        """What the system says, such as ``Disk quota exceeded``."""
        self.free_bytes = free_bytes
        """How much was free for this user, a quota aside; None where unknown."""


class NotAStatsFileError(StatsFileError):
    """What the user named as a stats file is none: it is missing, cannot be opened, or is something else."""

    exit_code = ExitCode.USAGE


class ProtocolError(InfrastructureError):
    """A message breaks the wire's contract; it is counted and dropped, and never ends a listener."""


class ParseError(UsageError):
    """A tool's output is not what its parser knows; `line` is 1-based, `text` the offending line."""

    def __init__(self, message: str, *, line: int | None = None, text: str | None = None) -> None:
        self.line = line
        self.text = text
        where = f"line {line}: " if line is not None else ""
        quoted = f": {shorten(text.strip(), 200)!r}" if text is not None else ""
        super().__init__(f"{where}{message}{quoted}")


class NotARunOutput(ParseError):
    """A tool's output is known to be none of a run: it prepared or tidied, told its version, or ran another test."""


_BEGINNING: Final = 3
"""Letters by which a word can be told from others."""


_MAX_WORD_CHARS: Final = 200
"""What is longer is no misspelling; to compare texts takes the product of their lengths."""


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` nearly spells, or the only one that it begins, or None."""
    if len(word) > _MAX_WORD_CHARS:
        return None
    names = sorted(name for name in known if len(name) <= _MAX_WORD_CHARS)
    folded = {name.lower().replace("-", "_"): name for name in names}
    meant = word.lower().replace("-", "_")
    matches = get_close_matches(meant, list(folded), n=3, cutoff=0.6)
    # Letters that changed places are a slip of the fingers, and nearer than other letters.
    swapped = [match for match in matches if sorted(match) == sorted(meant)]
    if matches:
        return folded[(swapped or matches)[0]]
    begun = [name for name in folded if len(meant) >= _BEGINNING and name.startswith(meant)]
    return folded[begun[0]] if len(begun) == 1 else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the known word nearest to `word`, or an empty string."""
    name = closest_match(word, known)
    return f" (did you mean '{name}'?)" if name is not None else ""
