"""Clients that start plain processes and keep no record of anything, for ``life_cycles.py``.

The leanest makes a directory for each process, as the engine ``native`` does, starts it by posix_spawn, kills it and
reaps it. A shell loop does the same.
"""

# ruff: noqa: PTH102, PTH106  a path object takes longer than the call: the leanest client does without

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

COMMAND: Final = ("sleep", "600")
SHELL_LOOP: Final = """
for number in $(seq "$1"); do
    mkdir "$HOME_OF_ALL/shell-$$-$number"
    sleep 600 & pid=$!
    kill -KILL $pid; wait $pid 2>/dev/null
    rmdir "$HOME_OF_ALL/shell-$$-$number"
done
"""


def clients(engine: str, options: argparse.Namespace) -> dict[str, Callable[[int], None]] | str:
    """Return the loops by the clients' names, the leanest first; or why there are none."""
    del engine
    program = shutil.which(COMMAND[0])
    if program is None:
        return "there is no `sleep` here"
    home = home_of(options)
    home.mkdir(mode=0o700)
    env = dict(os.environ)
    nothing = os.open(os.devnull, os.O_RDWR)
    streams = [(os.POSIX_SPAWN_DUP2, nothing, number) for number in range(3)]

    def spawned(count: int) -> None:
        directory = f"{home}/{threading.get_ident()}"
        for _ in range(count):
            os.mkdir(directory)
            pid = os.posix_spawn(program, COMMAND, env, file_actions=streams, setsid=True)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.rmdir(directory)

    def in_a_shell(count: int) -> None:
        words = ["bash", "-c", SHELL_LOOP, "loop", str(count)]
        subprocess.run(words, env={**env, "HOME_OF_ALL": str(home)}, check=True)

    return {"posix_spawn": spawned, "processes in a shell": in_a_shell}


def home_of(options: argparse.Namespace) -> Path:
    """Return the directory of the processes' directories."""
    return Path(tempfile.gettempdir(), f"bare-native-{options.mark}")


def clean_up(engine: str, options: argparse.Namespace) -> None:
    """Delete the directories."""
    del engine
    shutil.rmtree(home_of(options), ignore_errors=True)
