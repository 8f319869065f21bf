"""The parameters of the treatments in a stats file's header, and in which of them two treatments differ.

Each has a name, which ``--accept`` takes. A difference refuses every word, unless the labels name it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, cast

from bench_common.job_kind import KERNEL
from bench_common.stats.block_types import StoredJob, StoredTreatment, definition_of
from bench_common.treatment import Treatment
from bench_master.verdicts.confounds import KNOWN_NAMES, Difference, shown

_PARAMETERS: Final = (
    "workload",
    "operations",
    "concurrency",
    "iterations",
    "operation_count",
    "run_seconds",
    "rate",
    "arrivals",
    "queue_timeout",
    "swap",
    "until",
    "placement",
)
"""Parameters of a treatment that refuse.

Those of its workload and container follow as ``params.NAME`` and so on; those of an own command as ``job.NAME``.
"""


def as_stored(treatment: Treatment) -> StoredTreatment:
    """Return a treatment of a plan as the header of a stats file has it, with its own labels and no title."""
    return cast("StoredTreatment", treatment.to_dict())


def parameters(treatment: StoredTreatment) -> dict[str, Any]:
    """Return the parameters of a treatment of a header by name, without those that are the default.

    Raises `ValueError` if what it runs is malformed.
    """
    definition, load = definition_of(treatment), treatment.get("open_load") or {}
    job = definition.get("job") or {}
    found: dict[str, Any] = {
        "workload": job.get("workload"),
        "operations": _operations(job),
        "rate": load.get("rate_per_s"),
        "arrivals": load.get("process"),
        "queue_timeout": load.get("queue_timeout_s"),
    }
    values_by_name: Mapping[str, object] = treatment
    found |= {name: values_by_name[name] for name in _PARAMETERS if name in values_by_name}
    for prefix, values in (("params", job.get("params")), ("container", definition.get("container"))):
        for name, value in (values or {}).items():
            found[f"{prefix}.{name}"] = value
    for name, value in (job.get("own") or {}).items():
        found[f"job.{name}"] = value
    if job.get("kind") not in (None, *_KERNEL):
        found |= _of_kind(job)
    for service, settings in (definition.get("services") or {}).items():
        for name, value in settings.items():
            found[f"services.{service}.{name}"] = value
    for name, metric in (treatment.get("metrics") or {}).items():
        if isinstance(metric, Mapping):
            found[f"unit of {name}"] = metric.get("unit")
    return {name: value for name, value in found.items() if value not in (None, {}, [], ())}


_KERNEL: Final = frozenset(kind.name for kind in KERNEL)
"""The kinds whose keys are parameters by their own names."""
_WHICH_STORE: Final = frozenset({"profile", "endpoints"})
"""Of a job on objects, what says which store it is: two stores may be compared."""


def _of_kind(job: StoredJob) -> dict[str, Any]:
    """Return the parameters of a job of a kind from a package: its fields, and those of parts by their names."""
    kind, found = job.get("kind"), dict[str, Any]()
    for name, value in job.items():
        if name == "kind" or (kind == "objects" and name in _WHICH_STORE):
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
    first, second = a.get("labels") or {}, b.get("labels") or {}
    factors = {name for name in {*first, *second} if first.get(name) != second.get(name)} - {"environment"}
    if factors - {"engine"}:
        # Treatments of one job differ in their labels' settings alone; other jobs are other measurements by intent.
        return []
    mine, theirs = parameters(a), parameters(b)
    return [
        Difference(name, shown(mine.get(name)), shown(theirs.get(name)), "refusal")
        for name in dict.fromkeys((*mine, *theirs))
        if mine.get(name) != theirs.get(name)
    ]


def timeout_differences(a: StoredTreatment, b: StoredTreatment) -> list[Difference]:
    """Return the time limits of operations that differ: a warning, for they change only what comes near to them."""
    mine, theirs = a.get("timeout_s"), b.get("timeout_s")
    if mine is None or theirs is None or mine == theirs:
        return []
    return [Difference("timeout", f"{mine:g} s", f"{theirs:g} s", "warning")]


def known_keys(treatments: Collection[StoredTreatment], fingerprints: Collection[Mapping[str, Any]]) -> list[str]:
    """Return every name that ``--accept`` takes for these treatments and hosts."""

    def names() -> Iterator[str]:
        yield from _PARAMETERS
        yield "timeout"
        yield from KNOWN_NAMES
        for treatment in treatments:
            yield from parameters(treatment)
            yield f"engine {treatment.get('engine')}"
        for fingerprint in fingerprints:
            yield from fingerprint

    return list(dict.fromkeys(names()))
