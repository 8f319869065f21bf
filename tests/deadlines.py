"""The deadlines of the tests: how long each waits before it calls a hang a hang, on the machine as it is now.

A deadline is a guard against a hang and shows nothing: a test that needs half a second passes with any of them. So
there are few, they are generous, and all are multiplied by one factor: how much slower than the reference machine
this one is at the start of the tests. The first process of a test run measures it and hands it on in the environment,
so that all lanes have the same one. `WEIGHBRIDGE_DEADLINE_FACTOR` sets it by hand (`3` for three times as long), for
a machine that becomes slow later.

A duration that a test is about, such as an option of a command or a clock that is passed in, is no deadline. The
same holds for the interval of a poll.
"""

import os
import subprocess
import sys
import time

VARIABLE = "WEIGHBRIDGE_DEADLINE_FACTOR"
HEADROOM, LARGEST = 1.5, 10.0
"""The machine may become slower while the tests run; and a hang has to be called one some day."""

ROUNDS, ROUNDS_S, REFERENCE_S = 5, 0.6, 0.06
"""How often we measure, when we stop at the latest, and what a round takes on the reference machine."""

_PROGRAM = "n = 0\nfor i in range(600_000): n += i * i % 7"
"""50 ms of work on the reference machine, after 8 ms for the start of Python."""


def time_round():
    """Return how long two Python programs take that run at once: the reference machine has two processors."""
    began = time.perf_counter()
    programs = [subprocess.Popen([sys.executable, "-I", "-S", "-c", _PROGRAM]) for _ in range(2)]
    for program in programs:
        program.wait(60)
    return time.perf_counter() - began


def measure_rounds(time_round=time_round):
    """Return the times of some rounds; fewer where a round takes long."""
    rounds = []
    while len(rounds) < ROUNDS and sum(rounds) < ROUNDS_S:
        rounds.append(time_round())
    return rounds


def factor_of(rounds):
    """Return the factor for a machine on which rounds took so long: the worst counts, since stalls come again."""
    return round(min(max(HEADROOM * max(rounds) / REFERENCE_S, 1), LARGEST), 1)


def find_factor(environ, measure=measure_rounds):
    """Return the factor that the environment states, or that is measured and then stated there, and its origin."""
    if given := environ.get(VARIABLE):
        try:
            factor = float(given)
        except ValueError:
            factor = 0.0
        if not 0 < factor < float("inf"):
            message = f"{VARIABLE}={given}: expected a number above 0, such as 3"
            raise ValueError(message)
        return factor, f"{VARIABLE} says so"
    rounds = measure()
    factor = factor_of(rounds)
    environ[VARIABLE] = str(factor)
    times = f"{min(rounds):.2f} to {max(rounds):.2f} s"
    return factor, f"this machine takes {times} for {REFERENCE_S} s of the reference machine, times {HEADROOM}"


FACTOR, ORIGIN = find_factor(os.environ)
HEADER = f"deadlines: x{FACTOR:g} ({ORIGIN})"

ANSWER_S = 20 * FACTOR
"""Of what processes do that are up already: an event, an answer, an operation, the end after a signal."""
START_S = 60 * FACTOR
"""Of a program until it is up, and of a run until it is as far as a test wants it."""
END_S = 90 * FACTOR
"""Of a program or a run from its start to its end."""
LONG_END_S = 150 * FACTOR
"""Of one that installs a worker, imports an image or starts services first."""
TEST_S = 180 * FACTOR
"""Of a test with its fixtures, for pytest-timeout."""
BUILD_S = 480 * FACTOR
"""Of a build of images, documents or clusters, and of the longest runs."""
LONG_TEST_S = 600 * FACTOR
"""Of a test that builds; or has many runs: `pytest.mark.timeout(LONG_TEST_S)`."""
SLOW_BUILD_S = 1500 * FACTOR
"""Of the virtual machines and clusters of slow tests."""
SLOW_TEST_S = 1800 * FACTOR
"""Of slow tests with those."""

LONGEST_NAP_S = 0.02


def wait_until(true, seconds=ANSWER_S, what="what the test waits for", sleep=time.sleep):
    """Wait until `true()` holds and return what it gave; fail with `what` after so many seconds.

    Where other greenlets of this process have to go on meanwhile, `sleep` is that of gevent.
    """
    deadline = time.monotonic() + seconds
    nap_s = 0.001
    while True:
        asked = time.monotonic()
        if value := true():
            return value
        answered = time.monotonic()
        assert answered < deadline, f"{what}: not within {seconds:g} s"
        # What looks at every process of the machine leaves it time for those that are waited for.
        sleep(max(nap_s, 3 * (answered - asked)))
        nap_s = min(1.5 * nap_s, LONGEST_NAP_S)
