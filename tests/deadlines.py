"""The deadlines of the tests: how long each waits before it calls a hang a hang.

A deadline is a guard against a hang and shows nothing: a test that needs half a second passes with any of them. So
there are few, and they are generous. `WEIGHBRIDGE_DEADLINE_FACTOR` multiplies all of them, those of scripts, too.

A duration that a test is about, such as an option of a command or a clock that is passed in, is no deadline. The
same holds for the interval of a poll.
"""

import os
import time

FACTOR = float(os.environ.setdefault("WEIGHBRIDGE_DEADLINE_FACTOR", "3"))

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
