"""Finds out whether CRIU, which saves and restores processes for most runtimes, can do its work on this kernel.

It depends on a kernel's insides like no other program: an older CRIU fails on a newer kernel, and needs capabilities
that a container's root may lack. So it is asked (``criu check``) before anything runs.
"""

from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path
from typing import Final

from bench_worker.engines.base import OperationFailed
from bench_worker.engines.command_line import CommandLine

PROGRAM: Final = "criu"
OPERATIONS: Final = frozenset({"checkpoint", "restore"})
_ADVICE: Final = "`script/engines criu`"
_ANSWER_S: Final = 2.5
_FEATURES_S: Final = 1.0
_CRUN: Final = "crun"
_ERROR: Final = re.compile(
    r"^(?:\(\d+\.\d+\)\s+(?:\d+: )?)?Error (?!\([^)]*\): rlimit: )(?:\([^)]*\): )?(.*)$", re.MULTILINE
)
"""An error in CRIU's words; that it may not raise its own limits is none."""
_VERSION: Final = re.compile(r"Version: (\S+)")


def trouble(runtime: str) -> str:
    """Return why `runtime` (a program, by name or path) cannot save containers by CRIU here; nothing where it can.

    Takes no more than 5 s.
    """
    return _unfit(runtime) or _trouble()


def _unfit(runtime: str) -> str:
    """Return that a runtime was built without CRIU, where that is known: few distributions build crun with it."""
    if Path(runtime).name != _CRUN:
        return ""
    try:
        features = CommandLine(runtime).errand(_FEATURES_S).ask("--version").text
    except OperationFailed as error:
        return f"`{runtime} --version` failed: {error}"
    return "" if "+CRIU" in features else "this crun was built without CRIU"


def _trouble() -> str:
    if shutil.which(PROGRAM) is None:
        advice = f"`apt-get install {PROGRAM}`, or {_ADVICE}"
        return f"there is no program {PROGRAM!r} on PATH, which saves processes ({advice})"
    errand = CommandLine(PROGRAM).errand(_ANSWER_S)
    try:
        answer = errand.call("check")
        if not answer.exit_code:
            return ""
        found = _VERSION.search(errand.ask("--version").text)
    except OperationFailed as error:
        return f"`{PROGRAM} check` failed: {error}"
    version = found[1] if found else "of an unknown version"
    why = first_error(answer.complaint)
    kernel = platform.release()
    return f"CRIU {version} cannot save processes on this kernel ({kernel}): {why}; a newer one may ({_ADVICE})"


def first_error(said: str) -> str:
    """Return the first error among the lines that CRIU wrote, without their places in its source."""
    found = _ERROR.search(said)
    return found[1].strip() if found else (said.partition("\n")[0].strip() or "it does not say why")
