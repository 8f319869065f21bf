"""What ``--version`` prints: the release, the commit, and the versions of Python and libzmq."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMIT_CHARS: Final = 12
_GIT_TIMEOUT_S: Final = 5.0


class VersionAction(argparse.Action):
    """``--version``: prints what a report of a fault has to name, in one line, and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str, **given: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, **given)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Print the line and exit."""
        sys.stdout.write(f"{version_line()}\n")
        parser.exit()


def version_line() -> str:
    """Return the version and commit of this program, and the versions of Python and libzmq."""
    import zmq

    from bench_common import __version__

    commit = _installed_commit() or _checked_out_commit() or "unknown"
    return (
        f"weighbridge {__version__} (commit {commit}, Python {platform.python_version()}, libzmq {zmq.zmq_version()})"
    )


def _installed_commit() -> str | None:
    """Return the commit that pip installed from a repository (PEP 610); None if it installed something else."""
    from importlib import metadata

    with suppress(metadata.PackageNotFoundError, ValueError, AttributeError):
        origin = json.loads(metadata.distribution("weighbridge").read_text("direct_url.json") or "{}")
        return str(origin.get("vcs_info", {}).get("commit_id", ""))[:_COMMIT_CHARS] or None
    return None


def _checked_out_commit() -> str | None:
    """Return the commit of the working tree that this module is in, marked if files differ from it; None without."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", f"--abbrev={_COMMIT_CHARS}", "--exclude=*"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True)  # noqa: S603
        return done.stdout.strip() or None
    return None
