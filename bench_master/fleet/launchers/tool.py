"""The command-line tools of clusters (kubectl, sbatch, docker), as the user has set them up."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Final

from bench_common.errors import InfrastructureError

TOOL_S: Final = 120.0
"""How long a tool may take."""


def run_tool(argv: Sequence[str], stdin: str = "", *, timeout_s: float = TOOL_S) -> str:
    """Return what a tool prints; raise `InfrastructureError` with its last words where it fails or is missing.

    What is secret goes to `stdin`: everybody on this machine can read an argument vector.
    """
    try:
        done = subprocess.run(  # noqa: S603  no shell, and the user's own tool
            list(argv), input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError as error:
        raise InfrastructureError(f"{argv[0]} is not installed here, or not on PATH") from error
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"{' '.join(argv[:2])} gave no answer within {timeout_s:g} s") from error
    if done.returncode:
        words = " ".join((done.stderr.strip() or done.stdout.strip()).split())
        raise InfrastructureError(f"{' '.join(argv[:2])} failed with exit code {done.returncode}: {words[:400]}")
    return done.stdout
