"""How jobs arrive: what `rate`, `arrivals` and `patience` of a cell say together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench_common.treatment import OpenLoad
from bench_master.scenario.format import default_of

if TYPE_CHECKING:
    from bench_master.scenario.diagnostics import Findings
    from bench_master.scenario.matrix import Settings

_WITH_A_RATE = ("arrivals", "patience")


def open_load(settings: Settings, findings: Findings) -> OpenLoad | None:
    """Return how the jobs of a cell arrive; None in the closed model, or where what is said makes no sense.

    A rate needs an end: a number of jobs or a time. Iterations are of slots, which do not pace jobs that arrive.
    """
    rate = settings.get("rate")
    if rate is None:
        for key in _WITH_A_RATE:
            if key in settings:
                findings.add(settings[key].place, f"'{key}' needs a 'rate', such as 'rate: 200/s'", deep=True)
        return None
    operations = settings.get("operations")
    if operations is not None and any(one.kind == "hold" for one in operations.value):
        message = "containers that 'hold' are packed one after the other, whatever the clock says"
        findings.add(rate.place, f"{message}: leave out the 'rate', or the 'hold'", deep=True)
        return None
    if "iterations" in settings:
        message = "'iterations' counts jobs of a slot, and with a 'rate' no slot decides when a job begins"
        findings.add(settings["iterations"].place, f"{message}; say 'operation_count' or 'run_seconds'", deep=True)
        return None
    if "operation_count" not in settings and "run_seconds" not in settings:
        findings.add(rate.place, "a 'rate' goes on for ever: say 'operation_count' or 'run_seconds'", deep=True)
        return None
    arrivals, patience = (_value(settings, key) for key in _WITH_A_RATE)
    return OpenLoad(rate.value, arrivals, patience)
