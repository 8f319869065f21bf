"""Loads a scenario: text, tree, overrides, shapes, treatments; and says everything that is wrong at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench_common.errors import ProtocolError, ScenarioError
from bench_common.messages import encode
from bench_master.scenario.advice import notes_on
from bench_master.scenario.aliases import translate_spellings
from bench_master.scenario.demands import check_thresholds
from bench_master.scenario.diagnostics import Findings, Given, plain_data
from bench_master.scenario.format import scenario_format
from bench_master.scenario.keys_run import check_baseline
from bench_master.scenario.model import Scenario
from bench_master.scenario.overrides import apply_all
from bench_master.scenario.profiles import PROFILES, SCALE
from bench_master.scenario.published import read_published
from bench_master.scenario.resolve import Resolver
from bench_master.scenario.source import Source, read_source
from bench_master.scenario.tree import Entries, Leaf, Place, quoted
from bench_master.scenario.types import INVALID
from bench_master.scenario.yaml_tree import Composer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench_common.treatment import Treatment


def load_scenario(reference: str, overrides: Sequence[str] = (), extra: Mapping[str, Any] | None = None) -> Scenario:
    """Return the scenario in the file `reference`, or the ready-made one of that name.

    `overrides` are ``--set`` texts (``jobs.cpu.params.time=5s``); `extra` are run keys from the command line's own
    switches, such as ``{"concurrency": 8}``, which hold for every job. Raises `ScenarioError` with every problem, and
    `UsageError` where there is no such file.
    """
    return scenario_from(read_source(reference), overrides, extra or {})


def scenario_from(
    source: Source,
    overrides: Sequence[str] = (),
    extra: Mapping[str, Any] | None = None,
    dialect: Callable[[Entries, Findings], Entries] | None = None,
) -> Scenario:
    """Return the scenario that a text holds; raise `ScenarioError` with every problem.

    A `dialect` makes a scenario's tree of the text's own before anything else is done with it.
    """
    findings = Findings()
    root = tree_of(source)
    if dialect is not None:
        root = dialect(root, findings)
    scale = apply_all(root, overrides, extra or {}, findings)
    translate_spellings(root, findings)
    shapes = scenario_format()
    read: Mapping[str, Given[Any]] = shapes.scenario.read(root, findings)
    resolved = Resolver(shapes, findings).resolve(read, root.place)
    thresholds = check_thresholds(read, resolved.treatments, findings)
    overhead = check_baseline(read, resolved.treatments, findings)
    published = _published(source, read, resolved.treatments, findings)
    _check_sizes(resolved.treatments, root, findings)
    if findings.deep:
        raise ScenarioError(findings.problems)
    for note in notes_on(resolved.treatments, resolved.repeats):
        findings.note(note)
    document = plain_data(root, findings.literals)
    return Scenario(
        name=read["name"].value,
        description=read["description"].value if "description" in read else "",
        path=source.path,
        text=source.text,
        document={key: value for key, value in document.items() if key not in {PROFILES, SCALE}},
        treatments=resolved.treatments,
        repeats=resolved.repeats,
        warmup=resolved.warmup,
        order=read["order"].value if "order" in read else "interleaved",
        seed=read["seed"].value if "seed" in read else None,
        sampling_interval_s=read["sampling_interval"].value if "sampling_interval" in read else 1.0,
        thresholds=thresholds,
        notes=tuple(findings.notes),
        overhead=overhead,
        limit="limit" in read and read["limit"].value,
        profiles=tuple(document.get(PROFILES, ())),
        scale=scale,
        published=published,
    )


def _check_sizes(treatments: Sequence[Treatment], root: Entries, findings: Findings) -> None:
    """Tell of a treatment that no worker could be told of: a file has a limit, but an alias repeats what it names."""
    for treatment in () if findings.deep else treatments:
        try:
            encode("define", 0, treatment=treatment.to_wire())
        except ProtocolError as error:
            text = f"{treatment.title or 'the job'} cannot be told to a worker: {error}; make its texts shorter"
            findings.add(root.place, text, deep=True)
            return


def _published(
    source: Source, read: Mapping[str, Given[Any]], treatments: Sequence[Treatment], findings: Findings
) -> Mapping[str, Any] | None:
    given = read.get("published")
    if given is None or given.value is INVALID or findings.deep:
        return None
    return read_published(given.value, source.path, treatments, given.place, findings)


def tree_of(source: Source) -> Entries:
    """Return the mapping that a text is; raise `ScenarioError` with everything that is wrong with its YAML."""
    composer = Composer(source.text, source.path)
    root = composer.compose()
    if composer.problems:
        raise ScenarioError(composer.problems)
    start = Place(source.path, 1, 1)
    if root is None or (isinstance(root, Leaf) and root.empty):
        raise ScenarioError([start.problem("the file is empty; a scenario has at least 'name' and 'job' or 'jobs'")])
    if not isinstance(root, Entries):
        raise ScenarioError([root.place.problem(f"a scenario is a mapping of keys to values, not {quoted(root)}")])
    return root
