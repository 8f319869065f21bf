"""Checks options of verdicts against the treatments that they are about: before a run, and for a report."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bench_common.errors import UsageError, did_you_mean
from bench_common.stats.block_types import StoredHost, StoredTreatment
from bench_master.analysis.gates import Gate, check_gates
from bench_master.analysis.parameters import known_keys
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.scenario.keys_run import unmatched_labels


def check_verdict_options(
    options: VerdictOptions,
    gates: Sequence[Gate],
    labels: Sequence[Mapping[str, Any]],
    treatments: Collection[StoredTreatment],
    hosts: Collection[StoredHost] = (),
) -> None:
    """Raise `UsageError` for a baseline or a gate whose labels no treatment has, or a property that nothing has.

    An option that means nothing is a mistake, also where nothing is compared. `labels` are those of the treatments.
    """
    if problem := unmatched_labels(options.baseline, labels):
        raise UsageError(problem)
    if not options.earlier:  # the properties of earlier runs are not known here
        known = known_keys(treatments, hosts)
        for name in sorted(options.accept - {*known}):
            raise UsageError(
                f"--accept {name}: no property has this name{did_you_mean(name, known)}; the report lists the "
                "properties that differ"
            )
    check_gates(gates, labels)
