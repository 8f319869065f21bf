"""Queries `bench-worker` about this machine. Master and worker share a command line here, never an import."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from bench_common.errors import ExitCode, InfrastructureError, UsageError


def worker_command() -> list[str]:
    """Return the argument vector that starts this installation's `bench-worker`."""
    return [sys.executable, "-m", "bench_worker"]


def query_worker(*flags: str, timeout_s: float = 60.0) -> list[dict[str, Any]]:
    """Run `bench-worker` with `flags` and return the JSON objects that it printed, one a line.

    Its stderr goes to ours, so progress shows at once. Raises `InfrastructureError` if it fails or takes longer than
    `timeout_s`, `UsageError` if it rejects its arguments.
    """
    command = [*worker_command(), *flags]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=timeout_s, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"bench-worker {' '.join(flags)} did not finish within {timeout_s:g} s") from error
    if done.returncode == ExitCode.USAGE:
        raise UsageError(f"bench-worker {' '.join(flags)} rejected its arguments (see its message above)")
    if done.returncode != 0:
        raise InfrastructureError(
            f"bench-worker {' '.join(flags)} failed with exit code {done.returncode} (see its message above)"
        )
    return [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
