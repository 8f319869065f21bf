"""Loads a scenario and reports all of its problems at once: text, tree, overrides, shapes, treatments, thresholds.

A threshold is checked against what the scenario measures, since one that matches nothing would always fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.structs import replace

from bench_common import defaults
from bench_common.cost import MAX_RSS, PROCESSES
from bench_common.engine_traits import engine_traits
from bench_common.errors import ProtocolError, ScenarioError, did_you_mean
from bench_common.job_rules import rules_of
from bench_common.messages import DefineTreatment, encode
from bench_common.thresholds import (
    JOB_SERIES,
    RESPONSE_SERIES,
    Threshold,
    UnknownMeasure,
    VerdictCondition,
    parse_condition,
)
from bench_common.treatment import Treatment
from bench_master.scenario.claims import find_claims
from bench_master.scenario.diagnostics import Diagnostics, Located, plain_data
from bench_master.scenario.format import scenario_format
from bench_master.scenario.keys_run import (
    PROFILES,
    SCALE,
    check_baseline,
    check_verdict_baseline,
    find_again,
    run_again,
)
from bench_master.scenario.master_part import master_parts
from bench_master.scenario.model import Scenario, UntilVerdict
from bench_master.scenario.operations import leaves_container, untold_reason
from bench_master.scenario.overrides import apply_all
from bench_master.scenario.published import read_published
from bench_master.scenario.resolve import Resolver
from bench_master.scenario.types import INVALID
from bench_master.scenario.yaml_tree import (
    MappingNode,
    ScalarNode,
    Source,
    SourceLocation,
    TreeComposer,
    quote_node,
    read_source,
)
from bench_workloads.script import job_metrics, job_script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


def check_thresholds(
    read: Mapping[str, Located[Any]], treatments: Sequence[Treatment], findings: Diagnostics
) -> tuple[str, ...]:
    """Return the thresholds of a scenario; report those that are malformed or match no treatment."""
    given = read.get("thresholds")
    if given is None or given.value is INVALID:
        return ()
    overhead = read.get("overhead")
    watched = overhead is not None and overhead.value is not None
    for one in given.value:
        try:
            complaint = unmatched_reason(parse_condition(one.value), treatments, watched=watched)
        except ValueError as error:
            here = _names_here(treatments) if isinstance(error, UnknownMeasure) else ""
            complaint = f"{error}{here}"
        if complaint:
            findings.add(one.place, complaint, deep=True)
    return tuple(one.value for one in given.value)


def _names_here(treatments: Sequence[Treatment]) -> str:
    """Return the names of what a scenario measures, for a message."""
    found = (
        f"; {kind} here: {', '.join(sorted(names))}"
        for kind in ("operations", "metrics")
        if (names := {name for treatment in treatments for name in _measure_names(treatment, kind)})
    )
    return "".join(found)


def unmatched_reason(
    threshold: Threshold | VerdictCondition, treatments: Sequence[Treatment], *, watched: bool
) -> str:
    """Return why no treatment matches a threshold; empty if one does."""
    labels = {label for treatment in treatments for label in treatment.labels}
    for key, _ in threshold.where:
        if treatments and key not in labels:
            return f"threshold '{threshold}': no treatment has a label '{key}'{did_you_mean(key, labels)}"
    meant = [treatment for treatment in treatments if threshold.matches_labels(treatment.labels)]
    if treatments and not meant:
        return f"threshold '{threshold}': no treatment matches its labels"
    if isinstance(threshold, VerdictCondition):
        alone = len(treatments) == 1
        return f"threshold '{threshold}': there is only one treatment: add an engine or a value" if alone else ""
    if threshold.path[0] == "overhead" and not watched:
        return f"threshold '{threshold}': the scenario does not measure overhead; add 'overhead: true'"
    part = master_parts().get(threshold.path[0])
    if part is not None:
        if meant and not any(map(part.owns, meant)):
            return f"threshold '{threshold}': no treatment has {part.many}"
        threshold = replace(threshold, path=threshold.path[1:])
    if threshold.path[0] not in {"operations", "metrics"}:
        return ""
    known = {name for treatment in meant for name in _measure_names(treatment, threshold.path[0])}
    if not meant or threshold.path[1] in known:
        return ""
    kind = threshold.path[0].removesuffix("s")
    hint = did_you_mean(threshold.path[1], known) or f"; the names are: {', '.join(sorted(known)) or 'none'}"
    missing = f"no treatment has {kind} '{threshold.path[1]}'{hint}"
    return f"threshold '{threshold}': {untold_reason(threshold.path[1], meant) or missing}"


def _measure_names(treatment: Treatment, kind: str) -> set[str]:
    """Return the names of a treatment's operations, with those of the whole job, or of its metrics."""
    if kind == "operations":
        response = () if treatment.open_load is None else (RESPONSE_SERIES,)
        return {JOB_SERIES, *response, *(operation.name for operation in job_script(treatment))}
    return set(job_metrics(treatment))


FEW_REPEATS: Final = "repeats give no 95 % interval"
"""What a note says of too few of them; at the end of a run the verdicts say it."""
FEWEST_TRIALS: Final = 6
"""With fewer trials there is no 95 % interval of a difference, whatever it is."""
ADVISED_TRIALS: Final = 10
"""So many show a difference as large as the noise of a round, four times in five."""


def lint(treatments: Sequence[Treatment], repeats: Sequence[int]) -> Iterator[str]:
    """Yield a note for each thing that is likely to surprise the user."""
    lifecycles = [(one, operations) for one in treatments if (operations := one.job.engine_operations)]
    yield from _about(
        (one for one, operations in lifecycles if leaves_container(operations)),
        "no 'remove' among the operations: the worker removes the container afterwards, untimed",
    )
    yield from _about(
        (
            one
            for one, operations in lifecycles
            if engine_traits(one.engine).has_init
            and one.container.init is None
            and any(operation.kind == "stop" for operation in operations)
        ),
        "'stop' takes the whole grace period if the command has no SIGTERM handler; 'init: true' forwards it, where "
        "the engine brings an init (docker, podman)",
    )
    untold = [one for one in treatments if one.cost and not engine_traits(one.engine).cost]
    names = ", ".join(dict.fromkeys(one.engine for one in untold))
    yield from _about(
        untold, f"'cost': nobody tells the cost of a job of {names}; docs/scenarios.rst says who tells what"
    )
    yield from _about(
        (one for one in treatments if one.cost and engine_traits(one.engine).cost == PROCESSES),
        f"'cost': plain processes have no {MAX_RSS} unless they take more memory than the worker that starts them",
    )
    few = [one for one, count in zip(treatments, repeats, strict=True) if count < FEWEST_TRIALS]
    if len(treatments) > 1:
        advice = f"{ADVISED_TRIALS} are advised, or 'repeats: {{until: verdict}}'"
        yield from _about(few, f"fewer than {FEWEST_TRIALS} {FEW_REPEATS}: {advice}")


def caveats(treatments: Iterable[Treatment]) -> tuple[str, ...]:
    """Return the caveats of the workloads that the treatments run, with their names."""
    return tuple(dict.fromkeys(caveat for one in treatments if (caveat := rules_of(one).caveat)))


def _about(treatments: Iterable[Treatment], text: str) -> Iterator[str]:
    jobs = dict.fromkeys(str(one.labels.get("job", "")) for one in treatments)
    if jobs:
        names = ", ".join(name for name in jobs if name)
        yield f"{f'job {names}: ' if names else ''}{text}"


TreeChange: TypeAlias = "Callable[[MappingNode, Diagnostics], None]"
"""Changes a tree before it is checked."""


def load_scenario(reference: str, overrides: Sequence[str] = ()) -> Scenario:
    """Return the scenario in the file `reference`, or the ready-made one of that name.

    `overrides` are ``--set`` texts (``jobs.cpu.params.time=5s``). Raises `ScenarioError` with every problem, and
    `UsageError` where there is no such file.
    """
    return parse_scenario(read_source(reference), overrides)


def parse_scenario(
    source: Source,
    overrides: Sequence[str] = (),
    dialect: Callable[[MappingNode, Diagnostics], MappingNode] | None = None,
    change: TreeChange | None = None,
) -> Scenario:
    """Return the scenario that a text holds; raise `ScenarioError` with every problem.

    A `dialect` first translates the tree of another tool's file into a scenario's; `change` is made after the
    `overrides`.
    """
    findings = Diagnostics()
    root = parse_tree(source)
    if dialect is not None:
        root = dialect(root, findings)
    scale = apply_all(root, overrides, findings)
    if change is not None:
        change(root, findings)
    shapes = scenario_format()
    read: Mapping[str, Located[Any]] = shapes.scenario.read(root, findings)
    resolved = Resolver(shapes, findings).resolve(read, root.place)
    thresholds = check_thresholds(read, resolved.treatments, findings)
    overhead = check_baseline(read, resolved.treatments, findings)
    baseline = check_verdict_baseline(read, resolved.treatments, findings)
    published = _published(source, read, resolved.treatments, findings)
    _check_treatment_sizes(resolved.treatments, root, findings)
    until_verdict = _check_until(read, resolved.repeats, root, findings)
    claims = find_claims(read, resolved, findings)
    again = find_again(read, resolved.treatments, findings)
    if findings.deep:
        raise ScenarioError(findings.problems)
    repeats = tuple(one.at_most if isinstance(one, UntilVerdict) else one for one in resolved.repeats)
    for note in lint(resolved.treatments, repeats):
        findings.note(note)
    places = [treatment.index for treatment in again]
    document = plain_data(root, findings.literals)
    treatments = (*resolved.treatments, *run_again(again, len(resolved.treatments)))
    for part in master_parts().values():
        if not any(map(part.owns, treatments)):
            continue
        treatments, changes = part.settle(treatments)
        for note in changes:
            findings.note(note)
    return Scenario(
        name=read["name"].value,
        description=read["description"].value if "description" in read else "",
        path=source.path,
        text=source.text,
        document={key: value for key, value in document.items() if key not in {PROFILES, SCALE}},
        treatments=treatments,
        repeats=(*repeats, *(repeats[place] for place in places)),
        warmup=(*resolved.warmup, *(resolved.warmup[place] for place in places)),
        until_verdict=until_verdict,
        settle_s=read["settle"].value if "settle" in read else defaults.SETTLE_S,
        order=read["order"].value if "order" in read else defaults.ORDER,
        seed=read["seed"].value if "seed" in read else None,
        sampling_interval_s=read["sampling_interval"].value
        if "sampling_interval" in read
        else defaults.SAMPLING_INTERVAL_S,
        thresholds=thresholds,
        notes=tuple(findings.notes),
        primary=(*resolved.primary, *(resolved.primary[place] for place in places)),
        baseline=baseline,
        margin=read["margin"].value if "margin" in read else None,
        claims=claims,
        overhead=overhead,
        explain="explain" in read and read["explain"].value,
        speed_probe="speed_probe" not in read or read["speed_probe"].value,
        host_ceiling="host_ceiling" in read and read["host_ceiling"].value,
        profiles=tuple(document.get(PROFILES, ())),
        scale=scale,
        allow_failures="allow_failures" in read and read["allow_failures"].value,
        published=published,
        setting_places=resolved.setting_places,
        command_places=resolved.command_places,
    )


def _check_until(
    read: Mapping[str, Located[Any]], repeats: Sequence[int | UntilVerdict], root: MappingNode, findings: Diagnostics
) -> UntilVerdict | None:
    """Return the rule by which the whole run goes on; report one that holds for a part of it, or cannot hold."""
    rules = [one for one in repeats if isinstance(one, UntilVerdict)]
    if not rules:
        return None
    place = read["repeats"].place if "repeats" in read else root.place
    if len(rules) < len(repeats) or len(set(rules)) > 1:
        message = "'repeats: {until: verdict}' holds for a whole run: give it once, at the top level"
        findings.add(place, message, deep=True)
    elif len(rules) == 1:
        findings.add(place, "'until: verdict' needs a second treatment to compare with", deep=True)
    elif "order" in read and read["order"].value == "blocked":
        message = "'until: verdict' looks at whole rounds, and 'order: blocked' has none: use 'order: interleaved'"
        findings.add(place, message, deep=True)
    return rules[0]


def _check_treatment_sizes(treatments: Sequence[Treatment], root: MappingNode, findings: Diagnostics) -> None:
    """Report a treatment that is too large for a message: aliases can repeat text beyond the limit of a file."""
    for treatment in () if findings.deep else treatments:
        try:
            encode(DefineTreatment(epoch=0, treatment=treatment))
        except ProtocolError as error:
            text = f"{treatment.title or 'the job'} is too large to send to a worker: {error}; shorten its texts"
            findings.add(root.place, text, deep=True)
            return


def _published(
    source: Source, read: Mapping[str, Located[Any]], treatments: Sequence[Treatment], findings: Diagnostics
) -> Mapping[str, Any] | None:
    given = read.get("published")
    if given is None or given.value is INVALID or findings.deep:
        return None
    return read_published(given.value, source.path, treatments, given.place, findings)


def parse_tree(source: Source) -> MappingNode:
    """Return the top-level mapping of a text; raise `ScenarioError` with all problems of its YAML."""
    composer = TreeComposer(source.text, source.path)
    root = composer.compose()
    if composer.problems:
        raise ScenarioError(composer.problems)
    start = SourceLocation(source.path, 1, 1)
    if root is None or (isinstance(root, ScalarNode) and root.empty):
        raise ScenarioError(
            [start.problem("the file is empty; a scenario needs at least 'name' and 'job' or 'jobs'")]
        )
    if not isinstance(root, MappingNode):
        raise ScenarioError(
            [root.place.problem(f"a scenario is a mapping of keys to values, not {quote_node(root)}")]
        )
    return root
