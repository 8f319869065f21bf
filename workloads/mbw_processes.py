"""Several mbw at once, as the study vm-docker-bench ran one for each CPU: what they print, and their rates' sum.

A sum over 32 processes and one over two say nothing beside each other unless their numbers stand there too, so that
the number of processes and the mean of one are given with every sum.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bench_common.errors import ParseError

if TYPE_CHECKING:
    from collections.abc import Callable

PROCESSES_SCRIPT: Final = (
    "mbw -h; n=$1; shift; "
    '[ "$n" -gt 0 ] || n=$(nproc) || exit; '
    "d=$(mktemp -d) || exit; trap 'rm -r \"$d\"' EXIT; "
    'i=1; while [ "$i" -le "$n" ]; do mbw "$@" >"$d/$i" 2>&1 & i=$((i+1)); done; wait; '
    'i=1; while [ "$i" -le "$n" ]; do echo "process $i of $n"; cat "$d/$i"; i=$((i+1)); done'
)
"""Prints the help, starts so many mbw at once (0: as many as CPUs may be used), then prints what each of them said.

The text is fixed; the number and the parameters come as words of their own.
"""

_PROCESS: Final = re.compile(r"process (\d{1,5}) of (\d{1,5})", re.ASCII)
_CORES: Final = re.compile(r"Starting test on (\d{1,5}) cores", re.ASCII)
_WAITING: Final = "Waiting for tests to finish"
_SUM: Final = re.compile(r"(MEMCPY|DUMB|MCBLOCK) Total AVG: (\d{1,12}(?:\.\d{1,6})?) MiB/s", re.ASCII)


def total_name(name: str) -> str:
    """Return what the sum over all processes of a rate of one is called."""
    return name.replace("_mib_per_second", "_total_mib_per_second")


def read_processes(text: str, read: Callable[[str], dict[str, float]]) -> dict[str, float] | None:
    """Return the metrics of several mbw at once; None where the text is of one. `read` is the parser of one.

    Raises `ParseError` where one of them failed, is missing or differs from the others in what it measured.
    """
    lines = text.split("\n")
    places = [(at, match) for at, line in enumerate(lines) if (match := _PROCESS.fullmatch(line.strip()))]
    if not places:
        return _read_sums([line.strip() for line in lines])
    count = int(places[0][1][2])
    found = [(int(match[1]), int(match[2])) for _, match in places]
    if found != [(number, count) for number in range(1, count + 1)]:
        raise ParseError(
            "processes are missing, or there are two runs", line=places[-1][0] + 1, text=lines[places[-1][0]]
        )
    starts = [at for at, _ in places]
    helping = lines[: starts[0]]
    metrics = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        # Blank lines in the place of the others keep the numbers of lines what they are in the whole text.
        blank = [""] * (start + 1 - len(helping))
        metrics.append(read("\n".join([*helping, *blank, *lines[start + 1 : end]])))
    if any(set(one) != set(metrics[0]) for one in metrics):
        raise ParseError("the processes did not measure the same")
    return _together(metrics)


def _together(metrics: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each rate over the processes, the least and the largest of extremes, and the sums."""
    count = len(metrics)
    merged: dict[str, float] = {"processes": float(count)}
    for name in metrics[0]:
        values = [one[name] for one in metrics]
        if "_min_" in name:
            merged[name] = min(values)
        elif "_max_" in name:
            merged[name] = max(values)
        elif "_median_" not in name:
            merged[name] = sum(values) / count
            merged[total_name(name)] = sum(values)
    return merged


def _read_sums(lines: list[str]) -> dict[str, float] | None:
    """Return the metrics in what the study's own script printed: sums of averages, by label as printed."""
    told = [(number, line) for number, line in enumerate(lines, start=1) if line]
    cores = _CORES.fullmatch(told[0][1]) if told else None
    if cores is None:
        return None
    count = int(cores[1])
    metrics: dict[str, float] = {"processes": float(count)}
    for (number, line), expected in zip(told[1:], (_WAITING, "MEMCPY", "DUMB", "MCBLOCK"), strict=False):
        match = _SUM.fullmatch(line)
        if line == expected == _WAITING:
            continue
        if match is None or match[1] != expected or not count:
            raise ParseError(f"expected '{expected} ...'", line=number, text=line)
        name = f"labelled_{expected.lower()}_mib_per_second"
        metrics |= {name: float(match[2]) / count, total_name(name): float(match[2])}
    if len(told) != 5:  # noqa: PLR2004  the lines of one run
        at = min(5, len(told) - 1)
        raise ParseError("this is not one run of the study's script", line=told[at][0], text=told[at][1])
    return metrics
