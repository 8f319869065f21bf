"""The witness of the machine's attention sees a stall, and a round that the machine disturbed is taken again."""

import signal
import time
from types import SimpleNamespace

import attention
import pytest
from attention import Attention, DisturbedError, TakenAgain, undisturbed

STALL_S, HUGE_S = 0.05, 600


@pytest.mark.parametrize("beside_load", [False, True])
def test_a_stall_is_seen_and_measured(beside_load):
    """Of all that runs, here of the witness itself, which is stopped; with and without a priority."""
    with Attention(STALL_S, beside_load=beside_load) as watch:
        watch.process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        while time.monotonic() - stopped < 2 * STALL_S:
            time.sleep(0.005)
        watch.process.send_signal(signal.SIGCONT)
    assert watch.latest_s > STALL_S
    assert "a process was woken " in watch.disturbance
    assert watch.process.returncode == 0


def test_a_machine_within_the_limit_does_not_disturb():
    """With a limit that no machine reaches; the witness is gone afterwards, whatever becomes of the body."""
    with pytest.raises(KeyError), Attention(HUGE_S) as watch:
        raise KeyError
    assert watch.disturbance is None
    assert 0 <= watch.latest_s < HUGE_S
    assert watch.process.returncode == 0


def test_stolen_time_is_a_disturbance(monkeypatch):
    """It is that of the round, and told in milliseconds."""
    taken = iter([7.0, 7.25])
    monkeypatch.setattr(attention, "stolen_s", lambda: next(taken))
    with Attention(0.2) as watch:
        pass
    watch.latest_s = 0.0
    assert watch.disturbance == "the hypervisor took 250 ms"


def test_the_kernel_s_count_of_stolen_time_is_read():
    """It never falls."""
    before = attention.stolen_s()
    assert 0 <= before <= attention.stolen_s()


class Machine:
    """Stands in for the witness: says of each round what it is told to say."""

    def __init__(self, *disturbances):
        self.disturbances = list(disturbances)
        self.disturbance = None

    def __call__(self, limit_s, *, beside_load):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.disturbance = self.disturbances.pop(0)


class Rounds:
    """A test that fails in its first rounds."""

    def __init__(self, failing):
        self.failing, self.done = failing, 0

    def __call__(self):
        self.done += 1
        assert self.done > self.failing
        return "result"


@pytest.mark.parametrize(("failing", "machine"), [(0, [None]), (0, ["late"]), (2, ["late", "late", None])])
def test_a_disturbed_round_is_taken_again_until_one_passes(failing, machine):
    """One that passes all the same counts; each that is taken again is told."""
    rounds, told = Rounds(failing), []
    assert undisturbed(rounds, watch=Machine(*machine), told=told) == "result"
    assert rounds.done == failing + 1
    assert told == ["late"] * failing


def test_a_failure_without_a_disturbance_fails_at_once():
    """No other round is taken, and the failure is the body's own."""
    rounds = Rounds(3)
    with pytest.raises(AssertionError):
        undisturbed(rounds, watch=Machine("late", None), told=[])
    assert rounds.done == 2


def test_a_test_without_an_undisturbed_round_fails():
    """With that reason, and the last failure behind it."""
    with pytest.raises(DisturbedError, match=r"^in all of 3 rounds: late; later; latest$") as caught:
        undisturbed(Rounds(9), attempts=3, watch=Machine("late", "later", "latest"), told=[])
    assert isinstance(caught.value.__cause__, AssertionError)


def test_a_test_that_is_skipped_is_not_taken_again():
    """What a round needs and does not find, another one does not find, either."""
    with pytest.raises(pytest.skip.Exception):
        undisturbed(lambda: pytest.skip("no engine"), watch=Machine("late"))


def test_rounds_that_were_taken_again_are_told_at_the_end():
    """By the report of their test, which also comes from another lane."""
    told, item = ["late", "later"], SimpleNamespace(user_properties=[])
    plugin = TakenAgain(told)
    plugin.pytest_runtest_makereport(item, SimpleNamespace(when="call"))
    assert told == []
    plugin.pytest_runtest_makereport(item, SimpleNamespace(when="teardown"))
    lines = []
    call = SimpleNamespace(when="call", nodeid="a::b", user_properties=item.user_properties)
    teardown = SimpleNamespace(when="teardown", nodeid="a::b", user_properties=item.user_properties)
    reporter = SimpleNamespace(
        stats={"passed": [call], "": [teardown], "deselected": [object()]}, write_line=lines.append
    )
    plugin.pytest_terminal_summary(reporter)
    assert lines == ["a::b: round taken again: late", "a::b: round taken again: later"]
