"""What the two sides of a comparison differ in besides the treatment, from a file's header and its hosts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import numpy as np
from msgspec import Struct, field

from bench_common.engine_traits import engine_traits
from bench_common.host_info import SIDE_DETAIL
from bench_common.stats.block_types import StoredHost, StoredTreatment, definition_of
from bench_common.treatment import CONTAINER_PATH, PLAIN_ENVIRONMENTS
from bench_master.analysis.parameters import parameter_differences, timeout_differences
from bench_master.analysis.run_checks import Pair
from bench_master.analysis.verdict_types import DifferenceClass, PropertyReport
from bench_master.run_data.aggregate import Aggregator
from bench_master.verdicts import confounds
from bench_master.verdicts.confounds import Difference
from bench_master.verdicts.reasons import Code, Reason, because


class SideDifferences(Struct):
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

    def refusal(self, pair: Pair) -> Reason | None:
        """Note in what the sides of a pair differ; return why that refuses every word, None if it does not."""
        a, b = (self.ledger.treatments[index] for index in (pair.a, pair.b))
        titles = (a.title, b.title)
        differences = [(titles, one) for one in (*parameter_differences(a, b), *timeout_differences(a, b))]
        first, second = (self.hosts(index) for index in (pair.a, pair.b))
        if first and second and set(first) != set(second):
            differences += self._of_hosts(pair, first.values(), second.values())
        differences += [(titles, one) for one in self._of_surroundings(pair)]
        refusing = []
        for sides, one in differences:
            level: DifferenceClass = "accepted" if one.name in self.accept else one.effect
            self.found[one.name, f"{one.a}\n{one.b}"] = PropertyReport(
                one.name, dict(zip(sides, (one.a, one.b), strict=True)), level
            )
            if level == "refusal":
                refusing.append(one)
        return because(Code.PROPERTIES_DIFFER, properties=confounds.as_data(refusing)) if refusing else None

    @property
    def reports(self) -> list[PropertyReport]:
        """All of them, those that refuse first."""
        order = {"refusal": 0, "warning": 1, "accepted": 2, "treatment": 3}
        return sorted(self.found.values(), key=lambda one: order[one.level])

    def hosts(self, treatment: int) -> dict[str, StoredHost]:
        """Return the host blocks that a treatment ran on, by what tells hosts apart.

        One name may belong to several machines: a host is its name and its boot, or else its environment. A treatment
        that did not run has the hosts of its environment, so that an interrupted run has no others.
        """
        own = self.ledger.treatments[treatment]
        environment = str(own.environment or own.labels.get("environment") or "")
        found: dict[str, StoredHost] = {}
        those_there = [worker for worker, host in self.ledger.hosts.items() if str(host.environment) == environment]
        for worker in sorted(self._workers.get(treatment, those_there)):
            host = self.ledger.hosts.get(worker, StoredHost())
            boot = (host.fingerprint or {}).get("boot_id")
            found[f"{host.host or ''} {boot or environment}".strip()] = host
        return found or ({environment: StoredHost()} if environment else {})

    def _of_surroundings(self, pair: Pair) -> Iterator[Difference]:
        """Yield in what a plain process and a container differ besides the engine."""
        sides = [self.ledger.treatments[index] for index in (pair.a, pair.b)]
        if len({engine_traits(one.engine).runs_on_host for one in sides}) == 1:
            return
        given = {name for one in sides for name in definition_of(one).container.get("env") or ()}
        mine, theirs = (self._surroundings(index) for index in (pair.a, pair.b))
        yield from confounds.surrounding_differences(mine, theirs, given)
        one, other = (_writable_mounts(each) for each in sides)
        if (one or other) and not any("storage" in each.labels for each in sides):
            yield Difference("container.storage", one or _NO_MOUNT, other or _NO_MOUNT, "warning")

    def _surroundings(self, index: int) -> dict[str, str]:
        """Return what the host of a treatment told of what surrounds its jobs."""
        treatment = self.ledger.treatments[index]
        programs = (host.programs for host in self.hosts(index).values())
        facts = dict(next((found for one in programs if (found := one.get(treatment.engine))), {}))
        path, locale = (f"{SIDE_DETAIL}variable {name}" for name in ("PATH", "LANG"))
        is_plain = engine_traits(treatment.engine).runs_on_host
        if is_plain and treatment.plain_environment == PLAIN_ENVIRONMENTS[0]:
            # It is given that of a container.
            facts.pop(path, None)
            facts.pop(locale, None)
        return {path: CONTAINER_PATH, **facts} if any(name.startswith(SIDE_DETAIL) for name in facts) else {}

    def _of_hosts(
        self, pair: Pair, first: Iterable[StoredHost], second: Iterable[StoredHost]
    ) -> Iterator[tuple[tuple[str, str], Difference]]:
        a, b = (self.ledger.treatments[index] for index in (pair.a, pair.b))
        between = a.labels.get("environment") != b.labels.get("environment")
        engines = [a.engine] if a.engine == b.engine else []
        seen = set()
        for one, other in itertools.product(first, second):
            mine, theirs = (host.fingerprint or {} for host in (one, other))
            for difference in (
                *confounds.host_differences(mine, theirs, between_environments=between),
                *confounds.engine_differences(one.engines or {}, other.engines or {}, engines),
                *confounds.program_differences(one.programs, other.programs, engines),
                *self._of_speed(one, other),
            ):
                if difference.name not in seen:
                    seen.add(difference.name)
                    yield (_name(one), _name(other)), difference

    def _of_speed(self, one: StoredHost, other: StoredHost) -> Iterator[Difference]:
        """Yield a difference in speed that two hosts measured: no property shows it."""
        levels = []
        for host in (one, other):
            workers = [worker for worker, block in self.ledger.hosts.items() if block is host]
            readings = [math.log(each.cpu_ns) for worker in workers for each in self.ledger.speeds.get(worker, ())]
            levels.append(float(np.median(readings)) if readings else math.nan)
        if abs(levels[0] - levels[1]) > math.log1p(self.margin):
            a, b = (f"{math.exp(level) / 1e6:.1f} ms" for level in levels)
            yield Difference("speed", a, b, "warning")


_NO_MOUNT: Final = "the host's own disk"


def _writable_mounts(treatment: StoredTreatment) -> str:
    """Return where a container of a treatment writes that is not its own layer; nothing of a plain process.

    A folder of the host is the same for both.
    """
    if engine_traits(treatment.engine).runs_on_host:
        return ""
    mounts = definition_of(treatment).container.get("storage") or ()
    own = [one for one in mounts if not (one["kind"] == "host" and one.get("source")) and not one.get("read_only")]
    return ", ".join(f"{one['kind']} at {one['target']}" for one in own)


def _name(host: StoredHost) -> str:
    return f"{host.host or host.environment or ''}"
