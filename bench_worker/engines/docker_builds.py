"""Why a build has failed, in a sentence: Docker itself repeats the whole command, and leaves what it said above."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_STEP: Final = re.compile(r"The command '.*' returned a non-zero code: (\d+)", re.DOTALL)
_NO_IMAGE: Final = re.compile(
    r"dial tcp|no such host|TLS handshake|i/o timeout|request canceled|access denied|manifest .*unknown|not found:",
    re.IGNORECASE,
)
_BUILDERS_OWN: Final = re.compile(r"Removing intermediate container| *---> |Step \d+/\d+ : ")
_TELLING: Final = re.compile(
    r"^E: |\berror\b|\bno (?:such )?package|\bno command\b|not found|unable to", re.IGNORECASE
)


def reason_of(error: str, said: Iterable[str]) -> str:
    """Return why a build ended with this error of Docker's; `said` are the last lines before it."""
    failed = _STEP.fullmatch(error.strip())
    if failed is None:
        if _NO_IMAGE.search(error):
            return f"the image that its Dockerfile begins with is not here, and no registry gives it: {error.strip()}"
        return error.strip()
    own = [line.strip() for line in said if line.strip() and not _BUILDERS_OWN.match(line)]
    telling = [line for line in own if _TELLING.search(line)]
    words = (telling or own)[-1:]
    return f"a step of it ended with exit code {failed[1]}" + (f"; it said: {words[0]}" if words else "")
