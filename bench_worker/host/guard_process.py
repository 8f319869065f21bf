"""A guard: a process of its own that changes something on this host, and puts it back even if its maker is killed."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import gevent

from bench_worker.timing.posix_spawn import spawn

if TYPE_CHECKING:
    from collections.abc import Sequence

_POLL_S: Final = 0.005


class GuardFailed(Exception):
    """A guard could not make its change; its words say why, as far as it wrote any."""


class GuardProcess:
    """``python -m MODULE PID ARGUMENT...``: once it has made its change it writes a line; at SIGTERM it undoes it.

    What it has to say of a failure it writes to stderr. Its output is in a folder whose name begins with `prefix`.
    Raises `GuardFailed` unless the change is made within `timeout_s`.
    """

    def __init__(self, module: str, arguments: Sequence[str], *, prefix: str, timeout_s: float) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=prefix))
        self._out, self._err = self._folder / "out", self._folder / "err"
        self._ended: int | None = None
        try:
            self._pid = spawn(
                sys.executable,
                [sys.executable, "-m", module, str(os.getpid()), *arguments],
                env=dict(os.environ),
                cwd=str(Path.cwd()),
                stdout=str(self._out),
                stderr=str(self._err),
            )
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise GuardFailed(f"no process can be started for it: {error}") from error
        deadline = monotonic() + timeout_s
        while not self._has_written():
            status = self._status()
            if status is not None or monotonic() > deadline:
                raise GuardFailed(self._clear(status))
            gevent.sleep(_POLL_S)

    def release(self, timeout_s: float) -> tuple[int | None, str]:
        """Have it undo its change; return its exit status and words.

        The status is None if it has not ended within `timeout_s`, and a negative number is the signal that killed it.
        """
        if self._status() is None:
            os.kill(self._pid, signal.SIGTERM)
            deadline = monotonic() + timeout_s
            while self._status() is None and monotonic() < deadline:
                gevent.sleep(_POLL_S)
        return self._ended, self._clear(self._ended)

    def _status(self) -> int | None:
        if self._ended is None:
            ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG)
            if ended is not None:
                self._ended = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        return self._ended

    def _has_written(self) -> bool:
        return self._out.exists() and self._out.read_bytes().endswith(b"\n")

    def _clear(self, status: int | None) -> str:
        """Return what it wrote to stderr, and remove its output; one that still works on it goes on, and keeps it."""
        words = self._err.read_text("utf-8", "replace").strip() if self._err.exists() else ""
        if status is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        return words
