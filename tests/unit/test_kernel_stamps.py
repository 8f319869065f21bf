"""The kernel's stamps of received bytes, with clocks that are told what to say."""

import struct
import time

import pytest

from bench_worker.timing.kernel_stamps import ReceiveClock, same_clock

OFFSET_NS = 1_700_000_000_000_000_000


class Clocks:
    """Both clocks; each reading takes `step_ns`."""

    def __init__(self, step_ns=50):
        self.now_ns = 1_000_000_000
        self.offset_ns = OFFSET_NS
        self.step_ns = step_ns

    def monotonic(self):
        self.now_ns += self.step_ns
        return self.now_ns

    def real(self):
        self.now_ns += self.step_ns
        return self.now_ns + self.offset_ns


def ancillary(real_ns):
    return [(1, 35, struct.pack("@qq", *divmod(real_ns, 1_000_000_000)))]


def stamped(clock, clocks, ago_ns):
    """Return how long ago a stamp says that it was, of bytes that came `ago_ns` before now; None without a stamp."""
    now_ns = clocks.monotonic()
    stamp_ns = clock.stamp(ancillary(now_ns - ago_ns + clocks.offset_ns), now_ns)
    return now_ns - stamp_ns if stamp_ns else None


def test_a_stamp_is_moved_to_the_monotonic_clock():
    """The distance between the clocks is right to half of what a reading takes."""
    clocks = Clocks()
    clock = ReceiveClock(clocks.monotonic, clocks.real, same=lambda: True)
    assert stamped(clock, clocks, 5_000_000) == pytest.approx(5_000_000, abs=clock.uncertainty_ns)
    assert clock.uncertainty_ns <= 100
    assert stamped(clock, clocks, -5_000_000) == 0, "nothing comes in after it was read"


@pytest.mark.parametrize("step_ns", [3_600_000_000_000, -3_600_000_000_000, -5_000_000])
def test_a_clock_that_was_set_is_noticed(step_ns):
    """The stamp of that read is not used, the next one is right again."""
    clocks = Clocks()
    clock = ReceiveClock(clocks.monotonic, clocks.real, same=lambda: True)
    stamped(clock, clocks, 0)
    clocks.offset_ns += step_ns
    assert stamped(clock, clocks, 1_000_000) is None
    assert stamped(clock, clocks, 1_000_000) == pytest.approx(1_000_000, abs=100)


def test_a_reading_that_was_interrupted_is_made_again():
    """Of several, the one that took the shortest time counts."""
    clocks = Clocks()
    pauses = iter([15_000_000, 15_000_000])

    def real():
        clocks.now_ns += next(pauses, 50)
        return clocks.now_ns + clocks.offset_ns

    clock = ReceiveClock(clocks.monotonic, real, same=lambda: True)
    assert stamped(clock, clocks, 1_000_000) == pytest.approx(1_000_000, abs=200)


def test_an_unknown_form_of_stamp_is_not_used():
    """As of a kernel with another size of time."""
    clocks = Clocks()
    clock = ReceiveClock(clocks.monotonic, clocks.real, same=lambda: True)
    assert clock.stamp([(1, 35, bytes(8))], clocks.monotonic()) == 0


def test_the_loop_bounds_what_merged_segments_hide():
    """Bytes that a wait brought had not come before it."""

    class Timer:
        def earliest_ns(self):
            return 8_500_000

    assert ReceiveClock(loop_timer=Timer()).earliest_ns() == 8_500_000


def test_stamps_of_another_clock_are_not_used():
    """Something may stand between the program and its clock, from the start or later; the kernel goes by its own."""
    assert same_clock()
    assert not same_clock(lambda: time.time_ns() + 86_400_000_000_000)
    clocks, same = Clocks(), [True]
    clock = ReceiveClock(clocks.monotonic, clocks.real, same=lambda: same[0])
    assert stamped(clock, clocks, 1_000_000) == pytest.approx(1_000_000, abs=100)
    same[0] = False
    clocks.offset_ns += 86_400_000_000_000
    assert [stamped(clock, clocks, 1_000_000) for _ in range(3)] == [None] * 3


def test_readings_that_are_all_interrupted_change_nothing():
    """A worse measurement that does not contradict a better one is no news."""
    clocks = Clocks()
    clock = ReceiveClock(clocks.monotonic, clocks.real, same=lambda: True)
    stamped(clock, clocks, 0)
    clocks.now_ns += 200_000_000
    clocks.step_ns = 300_000
    assert stamped(clock, clocks, 5_000_000) == pytest.approx(5_000_000, abs=100)
    assert clock.uncertainty_ns <= 100


def test_the_distance_of_the_clocks_is_kept_until_it_is_known_better():
    """Measured anew it would be a few nanoseconds off, and the stamp of one segment would look like two."""
    clocks = Clocks(step_ns=500)
    clock = ReceiveClock(clocks.monotonic, clocks.real, same=lambda: True)
    came_ns = clocks.now_ns
    first_ns = clock.stamp(ancillary(came_ns + clocks.offset_ns), clocks.monotonic())
    clocks.now_ns += 200_000_000
    clocks.offset_ns += 90  # as a reading is off that was interrupted for a moment
    assert clock.stamp(ancillary(came_ns + OFFSET_NS), clocks.monotonic()) == first_ns
    clocks.now_ns += 200_000_000
    clocks.step_ns = 50
    clock.stamp(ancillary(came_ns + OFFSET_NS), clocks.monotonic())
    assert clock.uncertainty_ns <= 50
