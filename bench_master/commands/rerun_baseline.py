"""``run-scenario --rerun-baseline``: the treatments of an earlier run once more, in turns with the new ones.

Then old and new are treatments of one run: rounds in drawn order carry words that no comparison of two runs can.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from bench_common.errors import ScenarioError, UsageError, did_you_mean
from bench_common.stats.reader import StatsFile
from bench_common.treatment import Treatment
from bench_master.scenario import Scenario
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_master.verdicts.confounds import Difference, parameter_differences

LABEL: Final = "build"
"""The label that tells old from new; no key of a scenario has this name."""
OLD: Final = "baseline"
NEW: Final = "new"
_OF_A_BUILD: Final = ("container.", "services.")
"""Parameters in which builds may differ; the others say what is measured."""
_NOT_NEEDED: Final = frozenset({"published", "thresholds", "baseline", "margin"})
"""Keys of the earlier scenario that say nothing about its treatments."""
_SHOWN: Final = 3


def add_rerun_baseline(scenario: Scenario, path: Path, accept: Collection[str] = ()) -> Scenario:
    """Return the scenario with the treatments of the run in `path` that have a counterpart in it, labelled as old.

    Raises `UsageError` where they cannot be run again, or would not differ from the new ones in a build.
    """
    if scenario.order == "blocked":
        raise UsageError("--rerun-baseline: needs rounds that have both builds; add --set order=interleaved")
    old = {treatment.title: treatment for treatment in _earlier_scenario(path).treatments}
    counterparts = [(index, old[one.title]) for index, one in enumerate(scenario.treatments) if one.title in old]
    if not counterparts:
        hint = did_you_mean(scenario.treatments[0].title, old)
        raise UsageError(
            f"--rerun-baseline {path}: none of its treatments is in this scenario{hint}; it has: {', '.join(old)}"
        )
    found = [_differences(before, scenario.treatments[index]) for index, before in counterparts]
    _check(path, [each for one in found for each in one if each.name not in accept])
    if not any(found):
        raise UsageError(
            f"--rerun-baseline {path}: its treatments are the same as those of this scenario, so both would measure "
            "the build that is installed now; give each build an image of its own, or compare runs: "
            "bench-master compare --help"
        )
    indices = [index for index, _ in counterparts]
    treatments = [_labelled(one, index, NEW) for index, one in enumerate(scenario.treatments)]
    treatments += [
        _labelled(one, len(scenario.treatments) + number, OLD) for number, (_, one) in enumerate(counterparts)
    ]
    return replace(
        scenario,
        treatments=tuple(treatments),
        repeats=(*scenario.repeats, *(scenario.repeats[index] for index in indices)),
        warmup=(*scenario.warmup, *(scenario.warmup[index] for index in indices)),
        primary=(*scenario.primary, *(scenario.primary[index] for index in indices)) if scenario.primary else (),
        baseline={LABEL: OLD},
    )


def _earlier_scenario(path: Path) -> Scenario:
    header = StatsFile(path).header
    stored = header.get("scenario") or {}
    document = stored.get("document")
    if header.get("imported") or not document:
        raise UsageError(f"--rerun-baseline {path}: imported results hold no scenario that could be run again")
    kept = {key: value for key, value in document.items() if key not in _NOT_NEEDED}
    try:
        return parse_scenario(Source(str(path), json.dumps(kept)))
    except ScenarioError as error:
        raise UsageError(f"--rerun-baseline {path}: its scenario cannot be run by this version: {error}") from error


def _labelled(treatment: Treatment, index: int, build: str) -> Treatment:
    return msgspec.structs.replace(treatment, index=index, labels={**treatment.labels, LABEL: build})


def _differences(old: Treatment, new: Treatment) -> list[Difference]:
    return parameter_differences(old.to_dict(), new.to_dict())


def _check(path: Path, differences: Collection[Difference]) -> None:
    """Raise `UsageError` where old and new differ in what is measured, and not in what it is measured on."""
    wrong = {each.name: each for each in differences if not each.name.startswith(_OF_A_BUILD)}
    if wrong:
        shown = ", ".join(f"{each.name} ({each.a} -> {each.b})" for each in list(wrong.values())[:_SHOWN])
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise UsageError(
            f"--rerun-baseline {path}: it measured something else: {shown}{more}; change this scenario with --set, "
            f"or --accept {next(iter(wrong))}"
        )
