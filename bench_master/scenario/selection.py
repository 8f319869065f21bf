"""Part of a scenario: ``--only storage=volume`` keeps the treatments with such labels.

Values of one label are alternatives, different labels must all match. The scenario's baseline stays where it does not
have a label at all: a server on the host has no storage of a container to vary, and each storage is compared with it.
What speaks about left-out treatments alone (a threshold, a baseline) is left out with them, and a note says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from bench_common.errors import UsageError, did_you_mean
from bench_common.thresholds import parse_condition
from bench_master.scenario.keys_run import label_text, unmatched_labels
from bench_master.scenario.load import unmatched_reason
from bench_master.scenario.model import is_again

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bench_common.treatment import Treatment
    from bench_master.scenario.model import Scenario


def select_treatments(scenario: Scenario, only: Sequence[str]) -> Scenario:
    """Return the scenario with the treatments that have the labels in `only`, such as ``["engine=docker"]``.

    Raises `UsageError` for a label or value that no treatment has, and where no treatment has all of them.
    """
    if not only:
        return scenario
    wanted = _parse(only, scenario.treatments)
    places = [index for index, one in enumerate(scenario.treatments) if _has_all(one.labels, wanted)]
    shown = " ".join(f"--only {text}" for text in only)
    if not places:
        raise UsageError(f"{shown}: no treatment has all of these labels; leave one out, or see them with --dry-run")
    beside = [
        index for index, one in enumerate(scenario.treatments) if _is_baseline_of(one, scenario.baseline, wanted)
    ]
    places = sorted({*places, *beside})
    if len(places) == len(scenario.treatments):
        return scenario
    treatments = tuple(
        msgspec.structs.replace(scenario.treatments[place], index=index) for index, place in enumerate(places)
    )
    if scenario.until_verdict is not None and len(treatments) < 2:  # noqa: PLR2004  a comparison takes two
        raise UsageError(f"{shown}: one treatment is left, and 'until: verdict' needs two; add --set repeats=10")
    thresholds = tuple(_matching_thresholds(scenario, treatments))
    baseline = scenario.baseline
    stays = f", {len(beside)} of them the baseline" if beside else ""
    notes = [f"{shown}: {len(treatments)} of {len(scenario.treatments)} treatments{stays}"]
    notes += [
        f"threshold '{one}': left out, because no selected treatment matches it"
        for one in scenario.thresholds
        if one not in thresholds
    ]
    kept = [each.labels for each in treatments]
    claims = tuple(one for one in scenario.claims if one.treatment in kept and one.against in kept)
    notes += [
        f"claim '{one.says}' of {one.measure}: left out, because a treatment of it is not selected"
        for one in scenario.claims
        if one not in claims
    ]
    if baseline and unmatched_labels(baseline, [one.labels for one in treatments]):
        labels = ", ".join(f"{key}={value}" for key, value in baseline.items())
        notes.append(f"baseline {labels}: left out, because no selected treatment has it")
        baseline = {}
    return replace(
        scenario,
        treatments=treatments,
        repeats=tuple(scenario.repeats[place] for place in places),
        warmup=tuple(scenario.warmup[place] for place in places),
        primary=tuple(scenario.primary[place] for place in places) if scenario.primary else (),
        thresholds=thresholds,
        claims=claims,
        baseline=baseline,
        notes=(*notes, *scenario.notes),
    )


def _parse(only: Iterable[str], treatments: Sequence[Treatment]) -> Mapping[str, set[str]]:
    """Return the wanted values of each label."""
    known: dict[str, dict[str, None]] = {}
    for treatment in treatments:
        for key, value in treatment.labels.items():
            if not is_again({key: value}):
                known.setdefault(key, {})[label_text(value)] = None
    wanted: dict[str, set[str]] = {}
    for text in only:
        label, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not label or not value:
            raise UsageError(f"--only {text}: expected LABEL=VALUE, such as --only engine=docker")
        if label not in known:
            hint = did_you_mean(label, known) or f"; the labels are: {', '.join(known)}"
            raise UsageError(f"--only {text}: no treatment has the label '{label}'{hint}")
        if value not in known[label]:
            hint = did_you_mean(value, known[label]) or f"; {label} is one of: {', '.join(known[label])}"
            raise UsageError(f"--only {text}: no treatment has {label} '{value}'{hint}")
        wanted.setdefault(label, set()).add(value)
    return wanted


def _has_all(labels: Mapping[str, object], wanted: Mapping[str, set[str]]) -> bool:
    return all(label in labels and label_text(labels[label]) in values for label, values in wanted.items())


def _is_baseline_of(treatment: Treatment, baseline: Mapping[str, str], wanted: Mapping[str, set[str]]) -> bool:
    """Whether a treatment is of the scenario's baseline, lacks some of the wanted labels, and contradicts none."""
    labels = treatment.labels
    shared = {label: values for label, values in wanted.items() if label in labels}
    return (
        bool(baseline)
        and len(shared) < len(wanted)
        and not unmatched_labels(baseline, [labels])
        and _has_all(labels, shared)
    )


def _matching_thresholds(scenario: Scenario, treatments: Sequence[Treatment]) -> Iterator[str]:
    """Yield the thresholds that match a treatment; one that matches none would always fail."""
    for text in scenario.thresholds:
        if not unmatched_reason(parse_condition(text), treatments, watched=scenario.overhead is not None):
            yield text
