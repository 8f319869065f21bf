"""The argument parser of both programs: what it refuses is told in one line, with the nearest right spelling."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NoReturn

from bench_common.errors import ExitCode, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence


class CommandParser(argparse.ArgumentParser):
    """Parses a command line; a complaint says where its help is, and does not print the whole usage before itself."""

    _argv: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as usual; what is left over is refused here, where it is known which command it was meant for."""
        self._argv = tuple(args or ())
        parsed, rest = super().parse_known_args(args, namespace)
        if rest:
            self._refuse(rest)
        return parsed, rest

    def _refuse(self, rest: Sequence[str]) -> NoReturn:
        flag = next((word.split("=")[0] for word in rest if word.startswith("-")), None)
        if flag is None:
            self.error(f"unexpected {rest[0]!r}")
        self.error(f"there is no option {flag}{did_you_mean(flag, self._option_string_actions)}")

    def _stray(self) -> str | None:
        """Return the first word that belongs to no option."""
        for before, word in zip(("", *self._argv), self._argv, strict=False):
            action = self._option_string_actions.get(before)
            if not word.startswith("-") and (action is None or action.nargs == 0):
                return word
        return None

    def error(self, message: str) -> NoReturn:
        """Print the message on stderr, and where help is; exit 2."""
        if "invalid choice: '" in message:
            value = message.split("invalid choice: '")[1].split("'", maxsplit=1)[0]
            choices = [part.strip(" '\")") for part in message.rsplit("choose from", maxsplit=1)[-1].split(",")]
            message += did_you_mean(value, choices)
        missing = message.removeprefix("the following arguments are required: ").split("/")[0]
        if not self._get_positional_actions() and missing in self._option_string_actions and (stray := self._stray()):
            message += f" (did you mean '{missing} {stray}'?)"
        self.exit(int(ExitCode.USAGE), f"{self.prog}: {message}; see {self.prog} --help\n")
