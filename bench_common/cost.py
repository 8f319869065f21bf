"""What a job costs beside its time, as the kernel counts it: the names, units and sources of its measures.

`PROCESSES`: what wait4(2) returns of each process of the job that was reaped, in the form of getrusage(2), with the
children that it waited for, and what perf_event_open(2) counts of it and of all that it starts. `CGROUP`: the
counters of the container's control group, which has all of its processes, and the page cache that they filled.
Neither has what the engine does for the container outside of it, nor the servers of a workload. Bytes of files have
two names, because getrusage(2) counts pages when they become dirty, and a control group what goes to devices.

A container of a packing has two measures more, whether `cost` is asked for or not: what its control group held and
used while all containers did nothing but run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from bench_common.job_rules import MetricTypes

CostSource: TypeAlias = Literal["", "processes", "cgroup"]
PROCESSES: Final = "processes"
CGROUP: Final = "cgroup"

CPU_USER: Final = "cpu_user"
CPU_SYSTEM: Final = "cpu_system"
CPU_TOTAL: Final = "cpu_total"
MAX_RSS: Final = "max_rss"
MEMORY_PEAK: Final = "memory_peak"
CTX_VOLUNTARY: Final = "ctx_voluntary"
CTX_INVOLUNTARY: Final = "ctx_involuntary"
BLOCK_READ: Final = "block_read"
BLOCK_WRITTEN: Final = "block_written"
TASK_CLOCK: Final = "task_clock"
CYCLES: Final = "cycles"
INSTRUCTIONS: Final = "instructions"
CPU_FREQUENCY: Final = "cpu_frequency"
IO_READ: Final = "io_read"
IO_WRITTEN: Final = "io_written"

COST_UNITS: Final = {
    CPU_TOTAL: "s",
    CPU_USER: "s",
    CPU_SYSTEM: "s",
    MAX_RSS: "B",
    MEMORY_PEAK: "B",
    CTX_VOLUNTARY: "1",
    CTX_INVOLUNTARY: "1",
    BLOCK_READ: "B",
    BLOCK_WRITTEN: "B",
    TASK_CLOCK: "s",
    CYCLES: "1",
    INSTRUCTIONS: "1",
    CPU_FREQUENCY: "Hz",
    IO_READ: "B",
    IO_WRITTEN: "B",
}
"""All measures with their units, in the order of reports; of each, less is better, but for `CPU_FREQUENCY`."""

CONTAINER_MEMORY: Final = "container_memory"
CONTAINER_CPU: Final = "container_cpu"
HELD_UNITS: Final = {CONTAINER_MEMORY: "B", CONTAINER_CPU: "%"}
"""The measures of a container that is held, with their units: the memory charged to its control group at the end of
the hold, less file pages that it has not used lately, and its CPU time during the hold, in percent of one CPU."""

CHANGE_WORDS: Final = {
    CPU_TOTAL: ("uses more CPU time", "uses less CPU time"),
    CPU_USER: ("uses more CPU time in user mode", "uses less CPU time in user mode"),
    CPU_SYSTEM: ("uses more CPU time in the kernel", "uses less CPU time in the kernel"),
    MAX_RSS: ("uses more memory", "uses less memory"),
    MEMORY_PEAK: ("uses more memory", "uses less memory"),
    CTX_VOLUNTARY: ("waits more often", "waits less often"),
    CTX_INVOLUNTARY: ("is interrupted more often", "is interrupted less often"),
    BLOCK_READ: ("reads more", "reads less"),
    BLOCK_WRITTEN: ("writes more", "writes less"),
    TASK_CLOCK: ("uses more CPU time", "uses less CPU time"),
    CYCLES: ("takes more cycles", "takes fewer cycles"),
    INSTRUCTIONS: ("executes more instructions", "executes fewer instructions"),
    IO_READ: ("reads more", "reads less"),
    IO_WRITTEN: ("writes more", "writes less"),
    CONTAINER_MEMORY: ("uses more memory", "uses less memory"),
    CONTAINER_CPU: ("uses more CPU time", "uses less CPU time"),
}
"""What a treatment does whose measure is worse, and what one does whose measure is better. Nobody who uses less CPU
time is faster for that."""

_CPU: Final = (CPU_TOTAL, CPU_USER, CPU_SYSTEM)
_BY_SOURCE: Final = {
    "": (),
    PROCESSES: (
        *(*_CPU, MAX_RSS, CTX_VOLUNTARY, CTX_INVOLUNTARY, BLOCK_READ, BLOCK_WRITTEN),
        *(TASK_CLOCK, CYCLES, INSTRUCTIONS, CPU_FREQUENCY),
    ),
    CGROUP: (*_CPU, MEMORY_PEAK, IO_READ, IO_WRITTEN),
}
UNTOLD: Final = "cost."
"""The prefix of an engine's details that say why it cannot tell a measure on its host."""
_SHOWN: Final = (CPU_TOTAL, MAX_RSS, MEMORY_PEAK)
"""Those that a report shows without being asked for more."""


def held_metrics() -> MetricTypes:
    """Return the measures of a container that is held, as a workload declares its metrics."""
    return {name: {"unit": unit, "direction": "lower"} for name, unit in HELD_UNITS.items()}


def cost_metrics(source: CostSource) -> MetricTypes:
    """Return the measures that a source gives, as a workload declares its metrics."""
    return {
        name: {
            "unit": COST_UNITS[name],
            "direction": "higher" if name == CPU_FREQUENCY else "lower",
            **({"primary": True} if name in _SHOWN else {}),
        }
        for name in _BY_SOURCE[source]
    }
