"""Checks of the clocks that everything is measured with."""

from __future__ import annotations

from collections.abc import Iterator

from bench_worker.doctor.base import Check, Finding
from bench_worker.doctor.scene import Scene
from bench_worker.facts.cpu import CLOCK
from bench_worker.host.facts import whole_number

FAST = ("tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page", "timebase", "tod")
"""Read without entering the kernel, in tens of nanoseconds."""
COARSE = ("jiffies", "refined-jiffies", "pit")
DEFAULT_SLACK_NS = 50_000


class ClockSourceCheck(Check):
    """Stamps are only as good, and as cheap, as the kernel's clock source."""

    name = "clock source"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield one finding."""
        found = scene.files.text(f"{CLOCK}/current_clocksource")
        others = scene.files.text(f"{CLOCK}/available_clocksource") or ""
        better = next((name for name in others.split() if name in FAST), None)
        advice = (
            f"echo {better} > {CLOCK}/current_clocksource, unless the kernel's log says why it was given up"
            if better
            else "look in the kernel's log (dmesg | grep -i clocksource) for why nothing better was taken"
        )
        if not found:
            yield self.note("the kernel does not tell it", "stamps are of unknown resolution here")
        elif found in COARSE:
            yield self.problem(f"{found}: it ticks in milliseconds", advice, found)
        elif found not in FAST:
            yield self.warning(f"{found}: each stamp costs a microsecond or more", advice, found)
        else:
            yield self.ok(found, found)


class TimerSlackCheck(Check):
    """The kernel may delay a timer by the slack: it is part of every short sleep."""

    name = "timer slack"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield one finding."""
        slack_ns = whole_number(scene.files.text("/proc/self/timerslack_ns"))
        if slack_ns is not None and slack_ns > DEFAULT_SLACK_NS:
            yield self.warning(
                f"{slack_ns / 1000:g} us: timers come late by up to that",
                "start from a shell that no power saver has touched (the default is 50 us)",
                slack_ns,
            )
        else:
            yield self.ok("as the kernel sets it" if slack_ns is None else f"{slack_ns / 1000:g} us", slack_ns)
