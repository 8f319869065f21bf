"""Aliases: a tool's own names for a test and its options, translated where a scenario uses them.

A user of ``sysbench --test=cpu --num-threads=4`` can write just that; a note gives the names here. The tree is
translated before it is checked, so each value keeps its place and every check covers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench_common.errors import did_you_mean
from bench_master.scenario.guest import PARAMS, find_parameter
from bench_master.scenario.yaml_tree import ListNode, MappingNode, Node, ScalarNode, quote_node
from bench_workloads.registry import workload_classes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bench_master.scenario.diagnostics import Diagnostics
    from bench_workloads.base import Workload

_TEST: Final = "test"


def apply_aliases(root: MappingNode, findings: Diagnostics) -> None:
    """Replace a tool's names by ours; note each, and report a parameter that is given under both names."""
    classes = workload_classes()
    for job in _jobs(root):
        _apply_test_alias(job, classes, findings)
    for job in _jobs(root):
        own = _workloads([job], classes)
        _apply_option_aliases(job.values.get("params"), own, findings)
        _rename(job.values.get("params"), own, "", findings)
        _apply_matrix_aliases(job.values.get("matrix"), own, findings)
    heirs = [job for job in _jobs(root) if "matrix" not in job.values]
    _apply_matrix_aliases(root.values.get("matrix"), _workloads(heirs, classes), findings)


def _jobs(root: MappingNode) -> Iterator[MappingNode]:
    jobs = root.values.get("jobs")
    for job in [root.values.get("job"), *(jobs.values.values() if isinstance(jobs, MappingNode) else ())]:
        if isinstance(job, MappingNode):
            yield job


def _workloads(jobs: Iterable[MappingNode], classes: Mapping[str, type[Workload]]) -> list[type[Workload]]:
    names = (job.values.get("workload") for job in jobs)
    return [classes[name.text] for name in names if isinstance(name, ScalarNode) and name.text in classes]


def _apply_test_alias(job: MappingNode, classes: Mapping[str, type[Workload]], findings: Diagnostics) -> None:
    """Turn ``test: cpu``, in a job or its parameters, into `workload`."""
    params = job.values.get("params")
    owner = next(
        (one for one in (job, params) if isinstance(one, MappingNode) and _key_of(_TEST, one) is not None), None
    )
    if owner is None or "operations" in job.values:
        return
    key = str(_key_of(_TEST, owner))
    test, place = owner.values[key], owner.key_places[key]
    given = job.values.get("workload")
    if any(find_parameter(one, key) for one in _workloads([job], classes)):
        return
    if not isinstance(test, ScalarNode) or (given is not None and not isinstance(given, ScalarNode)):
        return
    known = {one.tool_test_name: name for name, one in classes.items() if one.tool_test_name}
    word = test.text.rpartition("/")[2].removesuffix(".lua")
    name = known.get(word)
    del owner.values[key]
    if name is None:
        there = did_you_mean(word, known) or f"; the tests are: {', '.join(sorted(known))}"
        findings.add(test.place, f"unknown test {quote_node(test)}{there}", deep=True)
        findings.mark_misspelling(job, "workload")
        job.values.pop("workload", None)
    elif isinstance(given, ScalarNode) and given.text not in {name, classes[name].binary}:
        findings.add(
            place, f"'{key}: {test.text}' means the workload {name}, not {given.text}: remove one", deep=True
        )
    else:
        job.put("workload", ScalarNode(test.place, name), place if given is None else job.key_places["workload"])
        _note(findings, f"{key}: {test.text}", f"workload: {name}")
        if word in classes[name].legacy_option_values.get(_TEST, {}):
            # Other options select the test; without them it is the tool's old default.
            if not isinstance(params, MappingNode):
                params = MappingNode(place)
                job.put("params", params, place)
            params.values.setdefault(f"--{_TEST}", ScalarNode(test.place, word))
            params.key_places.setdefault(f"--{_TEST}", place)


def _apply_option_aliases(params: object, workloads: list[type[Workload]], findings: Diagnostics) -> None:
    """Turn old options that select a test, each in its own way, into the parameter `test`."""
    if not isinstance(params, MappingNode):
        return
    for meanings in (workload.legacy_option_values for workload in workloads if workload.legacy_option_values):
        meant, written, at = "", [], None
        for option, values in meanings.items():
            key = _find_alias_key(option, params)
            value = params.values.get(key)
            if not isinstance(value, ScalarNode) or value.text not in values:
                continue
            del params.values[key]
            written.append(f"{key}: {value.text}")
            at, meant = params.key_places[key], values[value.text] or meant
        if at is None or not meant:
            continue
        if _TEST in params.values:
            if params.key_places[_TEST].line and len(written) > 1:
                findings.add(at, f"'{written[-1]}' repeats '{_TEST}': remove one", deep=True)
        else:
            params.put(_TEST, ScalarNode(at, meant), at)
            _note(findings, ", ".join(written), f"{_TEST}: {meant}")


def _find_alias_key(option: str, params: MappingNode) -> str:
    """Return an old option as this scenario spells it; empty if it is absent."""
    fits = (
        key
        for key in params.values
        if key.lstrip("-").replace("_", "-") == option and (option != _TEST or key.startswith("-"))
    )
    return next(fits, "")


def _apply_matrix_aliases(matrix: object, workloads: list[type[Workload]], findings: Diagnostics) -> None:
    if not isinstance(matrix, MappingNode):
        return
    _rename(matrix, workloads, PARAMS, findings)
    for key in ("include", "exclude"):
        listed = matrix.values.get(key)
        for entry in listed.items if isinstance(listed, ListNode) else ():
            _rename(entry, workloads, PARAMS, findings)


def _rename(node: object, workloads: list[type[Workload]], prefix: str, findings: Diagnostics) -> None:
    """Rename the keys with `prefix` that are a tool's names, where all workloads agree."""
    if not isinstance(node, MappingNode):
        return
    values, places = dict(node.values), dict(node.key_places)
    for key in list(values):
        name = _current_name(key.removeprefix(prefix), workloads) if key.startswith(prefix) else None
        if name is None:
            why = None if prefix else _ignorable_reason(key, values[key], workloads)
            if why is not None:
                del values[key]
                findings.note(f"'{key}' is ignored: {why}")
            continue
        today = prefix + name
        if today in values and places[today].line and places[key].line:
            first = f" (on line {places[today].line})"
            findings.add(places[key], f"'{key}' is another name for '{today}'{first}: remove one", deep=True)
            del values[key]
        elif today in values and not places[today].line:
            # The command line overrides the file.
            del values[key]
        else:
            # Keep the position: the order of a matrix is that of its keys.
            values = {today if one == key else one: value for one, value in values.items() if one != today}
            places[today] = places[key]
            _note(findings, key, today)
    node.values, node.key_places = values, places


def _current_name(key: str, workloads: list[type[Workload]]) -> str | None:
    """Return the name of a parameter here; None if no tool uses the word, or the workloads disagree."""
    if any(find_parameter(workload, key) for workload in workloads):
        return None
    word = key.lstrip("-")
    names = {_parameter_called(word, workload) for workload in workloads}
    return names.pop() if len(names) == 1 else None


def _parameter_called(word: str, workload: type[Workload]) -> str | None:
    own = word.replace("-", "_")
    return own if find_parameter(workload, own) else workload.tool_option_names.get(word.replace("_", "-"))


def _ignorable_reason(key: str, value: Node, workloads: list[type[Workload]]) -> str | None:
    """Return why an option with this value has no effect; None if it has one."""
    word = key.lstrip("-").replace("_", "-")
    for workload in workloads:
        harmless, why = workload.obsolete_options.get(word, ("", ""))
        if why and isinstance(value, ScalarNode) and value.text == harmless:
            return why
    return None


def _key_of(word: str, node: MappingNode) -> str | None:
    return next((key for key in node.values if key.lstrip("-") == word), None)


def _note(findings: Diagnostics, old: str, new: str) -> None:
    findings.note(f"'{old}' is read as '{new}', its name here")
