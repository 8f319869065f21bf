"""The parameters of the treatments in a stats file's header, and in which of them two treatments differ.

Each has a name, which ``--accept`` takes. A difference refuses every word, unless the labels name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from bench_common.cost import COST_UNITS, HELD_UNITS
from bench_common.engine_traits import engine_traits
from bench_common.host_info import IMAGE_DETAIL, PROGRAM_DETAIL, SIDE_DETAIL
from bench_common.job_kind import KERNEL, installed_job_type
from bench_common.layout import LAYOUTS
from bench_common.stats.block_types import StoredHost, StoredJob, StoredOpenLoad, StoredTreatment, definition_of
from bench_common.treatment import COLD_STARTS, PLAIN_ENVIRONMENTS
from bench_master.run_data.summary import HostSummary
from bench_master.verdicts.confounds import KNOWN_NAMES, Difference, shown

_OF_SIDES: Final = (SIDE_DETAIL, PROGRAM_DETAIL)
_OWN_MEASURES: Final = frozenset({*COST_UNITS, *HELD_UNITS})
PLAIN: Final = "plain_environment"
"""Of plain processes only: containers have an environment of their own."""
LAYOUT: Final = "layout"
"""Likewise: a layout that is drawn is the default."""
_PARAMETERS: Final = (
    "concurrency", "iterations", "operation_count", "run_seconds", "swap", "until", "placement", "cold", "cost",
    PLAIN, LAYOUT,
)  # fmt: skip
"""Parameters of a treatment that refuse.

Those of its workload and container follow as ``params.NAME`` and so on; those of an own command as ``job.NAME``.
"""


def parameters(treatment: StoredTreatment) -> dict[str, Any]:
    """Return the parameters of a treatment of a header by name, without those that are the default.

    Raises `ValueError` if what it runs is malformed.
    """
    definition, load = definition_of(treatment), treatment.open_load or StoredOpenLoad()
    job = definition.job
    found: dict[str, Any] = {
        "workload": job.get("workload"),
        "operations": _operations(job),
        "rate": load.rate_per_s,
        "arrivals": load.process,
        "queue_timeout": load.queue_timeout_s,
    }
    found |= {name: getattr(treatment, name) for name in _PARAMETERS}
    found["cold"] = None if found.get("cold") == COLD_STARTS[0] else found.get("cold")
    found["cost"] = found.get("cost") or None
    found |= dict.fromkeys(_meaningless(treatment, found))
    for prefix, values in (
        ("params", job.get("params")),
        ("container", definition.container),
        ("host", treatment.host),
    ):
        for name, value in (values or {}).items():
            found[f"{prefix}.{name}"] = value
    for name, value in (job.get("own") or {}).items():
        found[f"job.{name}"] = value
    if job.get("kind") not in (None, *_KERNEL):
        found |= _of_kind(job)
    for service, settings in definition.services.items():
        for name, value in settings.items():
            found[f"services.{service}.{name}"] = value
    # Which measures of its cost a job tells depends on the engine; the unit of each is always the same.
    found |= {f"unit of {name}": one.unit for name, one in treatment.metrics.items() if name not in _OWN_MEASURES}
    return {name: value for name, value in found.items() if value not in (None, {}, [], ())}


def _meaningless(treatment: StoredTreatment, found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parameters of plain processes that mean nothing here, or are the default."""
    in_containers = not engine_traits(treatment.engine).runs_on_host
    for name, value in ((PLAIN, PLAIN_ENVIRONMENTS[0]), (LAYOUT, LAYOUTS[1])):
        if in_containers or found.get(name) != value:
            yield name


_KERNEL: Final = frozenset(kind.name for kind in KERNEL)
"""The kinds whose keys are parameters by their own names."""


def _of_kind(job: StoredJob) -> dict[str, Any]:
    """Return the parameters of a job of a kind from a package: its fields, and those of parts by their names."""
    kind, found = str(job.get("kind")), dict[str, Any]()
    job_type = installed_job_type(kind)
    places = job_type.place_fields if job_type is not None else ()
    for name, value in job.items():
        if name == "kind" or name in places:
            continue
        parts = value if isinstance(value, list | tuple) else ()
        if parts and all(isinstance(part, dict) and "name" in part for part in parts):
            for part in parts:
                found |= {f"{kind}.{part['name']}.{key}": one for key, one in part.items() if key != "name"}
        else:
            found[f"{kind}.{name}"] = value
    return found


def _operations(job: StoredJob) -> list[Any] | None:
    listed = job.get("operations")
    if not listed:
        return None
    fields = ("kind", "name", "argv", "seconds", "signal", "timed", "fresh", "metrics")
    return [{name: one[name] for name in fields if name in one} for one in listed]


def parameter_differences(a: StoredTreatment, b: StoredTreatment) -> list[Difference]:
    """Return the parameters in which two treatments of headers differ, without those that their labels name.

    A label that is compared, such as ``concurrency`` or a name for several settings, is the treatment itself.
    """
    first, second = a.labels, b.labels
    factors = {name for name in {*first, *second} if first.get(name) != second.get(name)} - {"environment"}
    if factors - {"engine"}:
        # Treatments of one job differ in their labels' settings alone; other jobs are other measurements by intent.
        return []
    mine, theirs = parameters(a), parameters(b)
    if "engine" in factors:
        # It is what makes plain processes and containers comparable.
        mine.pop(PLAIN, None)
        theirs.pop(PLAIN, None)
    return [
        Difference(name, shown(mine.get(name)), shown(theirs.get(name)), "refusal")
        for name in dict.fromkeys((*mine, *theirs))
        if mine.get(name) != theirs.get(name)
    ]


def timeout_differences(a: StoredTreatment, b: StoredTreatment) -> list[Difference]:
    """Return the time limits of operations that differ: a warning, for they change only what comes near to them."""
    mine, theirs = a.timeout_s, b.timeout_s
    if mine is None or theirs is None or mine == theirs:
        return []
    return [Difference("timeout", f"{mine:g} s", f"{theirs:g} s", "warning")]


def engine_names(treatment: StoredTreatment) -> Iterator[str]:
    """Yield the names of what two hosts may differ in as to a treatment's engine, beside its version."""
    engine = treatment.engine
    yield f"program of {engine}"
    yield f"storage driver of {engine}"
    definition = definition_of(treatment)
    for settings in (definition.container, *definition.services.values()):
        if settings.get("image"):
            yield f"{IMAGE_DETAIL}{settings['image']} of {engine}"


def known_keys(treatments: Iterable[StoredTreatment], hosts: Iterable[StoredHost | HostSummary]) -> list[str]:
    """Return every name that ``--accept`` takes for these treatments and hosts."""

    def names() -> Iterator[str]:
        yield from _PARAMETERS
        yield "timeout"
        yield from KNOWN_NAMES
        for treatment in treatments:
            yield from parameters(treatment)
            yield f"engine {treatment.engine}"
            yield from engine_names(treatment)
        for host in hosts:
            yield from host.fingerprint or {}
            for engine, facts in host.programs.items():
                yield from (f"{fact} of {engine}" for fact in facts if fact.startswith(PROGRAM_DETAIL))
                yield from (fact.removeprefix(SIDE_DETAIL) for fact in facts if fact.startswith(_OF_SIDES))

    return list(dict.fromkeys(names()))
