"""What signals mean while workers are started, while a run is on, and once there is no run that they could be for.

Where a run is saved.
"""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import gevent

from bench_common.cli import honors_sighup
from bench_common.errors import UsageError
from bench_master.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_master.run.session import Session


def install_signal_handlers(session: Session) -> None:
    """Let signals mean what the user expects: Ctrl-C once and twice, and the end of the terminal or the system.

    A run that was begun under ``nohup`` outlives its terminal.
    """
    gevent.signal_handler(signal.SIGINT, session.interrupt)
    gevent.signal_handler(signal.SIGTERM, session.terminate)
    if honors_sighup():
        gevent.signal_handler(signal.SIGHUP, session.terminate)


def restore_signal_handlers() -> None:
    """Let signals end this process again: the run is saved, and a report can take long or wait for its reader."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if honors_sighup():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def interruptible(consequence: str) -> Iterator[None]:
    """Let a signal break off what goes on, in this greenlet and no other; `consequence` is told at once.

    Afterwards signals mean what they meant before.
    """
    here = gevent.getcurrent()

    def break_off() -> None:
        sys.stderr.write(f"interrupted: {consequence}\n")
        gevent.kill(here, KeyboardInterrupt)

    signals = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if honors_sighup() else ()))
    before = {sign: signal.getsignal(sign) for sign in signals}
    handlers = [gevent.signal_handler(sign, break_off) for sign in signals]
    try:
        yield
    finally:
        for handler in handlers:
            handler.cancel()
        for sign, meaning in before.items():
            # The event loop leaves the system's default behind, of which the interpreter does not know.
            signal.signal(sign, meaning)


DEFAULT_DIRECTORY = Path("weighbridge-results")
MAX_NAME_CHARS = 60
"""How much of a scenario's name becomes part of its file's name, in characters."""


def default_path(scenario: Scenario, *, noop: bool) -> Path:
    """Return where a run of a scenario is saved when nobody says: a new file."""
    name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in scenario.name.lower())
    # Runs that are started side by side have files of their own; a name of any length has one.
    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3] + "Z"
    stem = f"{name[:MAX_NAME_CHARS].strip('-') or 'scenario'}{'.noop' if noop else ''}.{when}"
    path = DEFAULT_DIRECTORY / f"{stem}.stats.gz"
    count = 1
    while path.exists():
        count += 1
        path = DEFAULT_DIRECTORY / f"{stem}-{count}.stats.gz"
    return path


def check_writable(stats: Path) -> None:
    """Make the stats file and remove it again: a place that cannot be written is told of before anything runs."""
    try:
        stats.parent.mkdir(parents=True, exist_ok=True)
        stats.touch(exist_ok=False)
        stats.unlink()
    except OSError as error:
        raise UsageError(f"{stats}: cannot be created: {error.strerror}; name another place with -s") from error
