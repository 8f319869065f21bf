"""What the two sides of a comparison differ in besides the treatment, from a file's header and its hosts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bench_common.errors import UsageError, did_you_mean
from bench_common.safe_text import shorten
from bench_master.analysis.aggregate import Aggregator
from bench_master.analysis.run_checks import Pair
from bench_master.analysis.verdict_types import DifferenceClass, PropertyReport
from bench_master.verdicts import confounds
from bench_master.verdicts.confounds import Difference

MAX_NAMED: Final = 3
"""How many properties a refusal names."""
MAX_VALUE_CHARS: Final = 40


@dataclass(slots=True)
class SideDifferences:
    """Collects in what the sides of a run's comparisons differ; `accept` are names that refuse nothing."""

    ledger: Aggregator
    accept: Collection[str]
    margin: float
    found: dict[tuple[str, str], PropertyReport] = field(default_factory=dict)
    _workers: dict[int, set[int]] = field(default_factory=dict)
    """The workers of each treatment that ran."""

    def __post_init__(self) -> None:
        for span in self.ledger.spans():
            self._workers.setdefault(span.treatment, set()).update(span.workers)

    def refusal(self, pair: Pair) -> str | None:
        """Note in what the sides of a pair differ; return why that refuses every word, None if it does not."""
        a, b = (self.ledger.treatments[index] for index in (pair.a, pair.b))
        titles = (str(a.get("title")), str(b.get("title")))
        differences = [(titles, one) for one in confounds.parameter_differences(a, b)]
        first, second = (self.hosts(index) for index in (pair.a, pair.b))
        if first and second and set(first) != set(second):
            differences += self._of_hosts(pair, first.values(), second.values())
        refusing = []
        for sides, one in differences:
            level: DifferenceClass = "accepted" if one.name in self.accept else one.effect
            self.found[one.name, f"{one.a}\n{one.b}"] = PropertyReport(
                one.name, dict(zip(sides, (one.a, one.b), strict=True)), level
            )
            if level == "refusal":
                refusing.append(one)
        return refusal_text(refusing) if refusing else None

    @property
    def reports(self) -> list[PropertyReport]:
        """All of them, those that refuse first."""
        order = {"refusal": 0, "warning": 1, "accepted": 2, "treatment": 3}
        return sorted(self.found.values(), key=lambda one: order[one.level])

    def hosts(self, treatment: int) -> dict[str, Mapping[str, Any]]:
        """Return the host blocks that a treatment ran on, by what tells hosts apart.

        One name may belong to several machines: a host is its name and its boot, or else its environment.
        """
        own = self.ledger.treatments[treatment]
        environment = str(own.get("environment") or own.get("labels", {}).get("environment") or "")
        found: dict[str, Mapping[str, Any]] = {}
        for worker in sorted(self._workers.get(treatment, ())):
            host = self.ledger.hosts.get(worker, {})
            boot = (host.get("fingerprint") or {}).get("boot_id")
            found[f"{host.get('host') or ''} {boot or environment}".strip()] = host
        return found or ({environment: {}} if environment else {})

    def _of_hosts(
        self, pair: Pair, first: Iterable[Mapping[str, Any]], second: Iterable[Mapping[str, Any]]
    ) -> Iterator[tuple[tuple[str, str], Difference]]:
        a, b = (self.ledger.treatments[index] for index in (pair.a, pair.b))
        between = a.get("labels", {}).get("environment") != b.get("labels", {}).get("environment")
        engines = [str(a.get("engine"))] if a.get("engine") == b.get("engine") else []
        seen = set()
        for one, other in itertools.product(first, second):
            mine, theirs = (host.get("fingerprint") or {} for host in (one, other))
            for difference in (
                *confounds.host_differences(mine, theirs, between_environments=between),
                *confounds.engine_differences(one.get("engines") or {}, other.get("engines") or {}, engines),
                *self._of_speed(one, other),
            ):
                if difference.name not in seen:
                    seen.add(difference.name)
                    yield (_name(one), _name(other)), difference

    def _of_speed(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Difference]:
        """Yield a difference in speed that two hosts measured: no property shows it."""
        levels = []
        for host in (one, other):
            workers = [worker for worker, block in self.ledger.hosts.items() if block is host]
            readings = [math.log(each.cpu_ns) for worker in workers for each in self.ledger.speeds.get(worker, ())]
            levels.append(float(np.median(readings)) if readings else math.nan)
        if abs(levels[0] - levels[1]) > math.log1p(self.margin):
            a, b = (f"{math.exp(level) / 1e6:.1f} ms" for level in levels)
            yield Difference("speed", a, b, "warning")


def _name(host: Mapping[str, Any]) -> str:
    return f"{host.get('host') or host.get('environment') or ''}"


def refusal_text(refusing: Sequence[Difference]) -> str:
    """Return why differences refuse every word, with what would accept them."""
    names = list(dict.fromkeys(one.name for one in refusing))
    first = "; ".join(f"{one.name} is {_short(one.a)} and {_short(one.b)}" for one in refusing[:MAX_NAMED])
    more = f"; {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    count = "a property differs" if len(names) == 1 else f"{len(names)} properties differ"
    return f"{count} besides the treatment ({first}{more})"


def check_accepted(
    accept: Collection[str], treatments: Collection[Mapping[str, Any]], hosts: Collection[Mapping[str, Any]] = ()
) -> None:
    """Raise `UsageError` for a name that no property of these treatments or of any host has."""
    known = confounds.known_keys(treatments, [host.get("fingerprint") or {} for host in hosts])
    for name in sorted(accept):
        if name not in known:
            raise UsageError(
                f"--accept {name}: no property has this name{did_you_mean(name, known)}; the report lists the "
                "properties that differ"
            )


def _short(value: str) -> str:
    return shorten(value, MAX_VALUE_CHARS)
