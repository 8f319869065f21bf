"""A run whose stats file cannot grow ends as incomplete: nobody interrupted it."""

from types import SimpleNamespace

from gevent.event import Event

from bench_common.errors import InfrastructureError
from bench_master.coordinator import messages as act
from bench_master.run.session import RunResult, Session


class Calls:
    """A coordinator that ends its run at the second interruption, and a screen."""

    def __init__(self):
        self.interrupts = 0
        self.scheduler = SimpleNamespace(in_flight=3)
        self.shown = []

    def handle(self, event, now):
        self.interrupts += 1
        return [act.RunFinished("interrupted", ())] if self.interrupts == 2 else []

    def notify(self, text, *, passing=False):
        self.shown.append(text)


def session():
    made, calls = object.__new__(Session), Calls()
    made._result, made._over, made._broken = RunResult("incomplete"), Event(), False
    made._coordinator = made._view = calls
    made._recorder = SimpleNamespace(journal=SimpleNamespace(waits_for_room=False))
    return made, calls


def test_a_full_disk_is_told_once_and_is_no_interruption():
    """The one message has the reason; the run is incomplete, which is exit code 3."""
    made, calls = session()
    made._journal_failed(InfrastructureError("x.stats.gz: No space left on device"))
    assert calls.shown == ["x.stats.gz: No space left on device; the run is cancelled"]
    assert made._result.status == "incomplete"
    assert made._result.reasons == ["x.stats.gz: No space left on device"]


def test_sigterm_is_an_interruption():
    """It is told, and the run is interrupted."""
    made, calls = session()
    made.terminate()
    assert calls.shown[0] == "interrupted: finishing 3 running jobs; Ctrl-C again aborts"
    assert made._result.status == "interrupted"
