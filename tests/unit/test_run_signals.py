"""Signals while workers start: they interrupt the start and print the consequence; afterwards they work as before."""

import signal
import subprocess
import sys

from deadlines import END_S

PROGRAM = """
from gevent import monkey
monkey.patch_all()
import os, signal, sys, time
import gevent
from bench_common.guard import silence_interrupts
from bench_master.commands.run_signals import interruptible

silence_interrupts()
sign = signal.Signals(int(sys.argv[1]))
if sys.argv[2] == "nohup":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

def raised():
    os.kill(os.getpid(), sign)
    gevent.sleep(0.01)

for place in (interruptible("it is ended"), gevent.Timeout(None)):
    try:
        with place:
            raised()
        print("went on", flush=True)
    except KeyboardInterrupt:
        print("broken off", flush=True)
"""


def run(sign, *, nohup=False):
    """Send a signal to a program while it starts workers, and once more afterwards; return how it took them."""
    command = [sys.executable, "-c", PROGRAM, str(int(sign)), "nohup" if nohup else ""]
    done = subprocess.run(command, capture_output=True, text=True, timeout=END_S, check=False)
    return done.returncode, done.stdout.split("\n")[:-1], done.stderr


def test_sigint_interrupts_the_start():
    """The consequence is printed at once, since the clean-up may take a while."""
    assert run(signal.SIGINT) == (0, ["broken off", "broken off"], "interrupted: it is ended\n")


def test_sigterm_interrupts_the_start():
    """Afterwards it ends the process, as before."""
    assert run(signal.SIGTERM) == (-signal.SIGTERM, ["broken off"], "interrupted: it is ended\n")


def test_nohup_ignores_sighup():
    """While workers start and after that."""
    assert run(signal.SIGHUP, nohup=True) == (0, ["went on", "went on"], "")
