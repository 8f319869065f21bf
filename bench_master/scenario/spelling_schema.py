"""The old spellings of `spellings` as JSON Schema: what the loader understands, an editor does not underline.

The loader translates before it checks, so its table of the format knows today's names alone; here the part of the
schema that is generated from it, a job, is given a tool's own names beside them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from workloads.registry import workload_classes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workloads.base import Workload

_TEST: Final = "^-*test$"
_HAS_TEST: Final[Mapping[str, Any]] = {"not": {"propertyNames": {"not": {"pattern": _TEST}}}}
"""Some key of a mapping is ``test``, with dashes in front or without."""
_PARAMS_HAVE_TEST: Final[Mapping[str, Any]] = {
    "properties": {"params": {"type": "object", **_HAS_TEST}},
    "required": ["params"],
}


def with_old_spellings(job: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a job with the names that tools have for their tests and options."""
    classes = workload_classes()
    tests = {one.tool_test: one for one in classes.values() if one.tool_test}
    named = [_HAS_TEST, _PARAMS_HAVE_TEST]
    known = {"type": "string", "pattern": _said("|".join(map(re.escape, sorted(tests))))}
    return {
        **job,
        "properties": {**job["properties"], "workload": _or_binaries(job["properties"]["workload"], tests)},
        "patternProperties": {_TEST: known},
        "allOf": [
            *(_rule(rule, classes, named) for rule in job["allOf"]),
            *(_of_binary(binary, named) for binary in sorted({one.binary for one in tests.values()})),
        ],
    }


def _or_binaries(shape: dict[str, Any], tests: Mapping[str, type[Workload]]) -> dict[str, Any]:
    return {**shape, "enum": [*shape["enum"], *sorted({one.binary for one in tests.values()})]}


def _of_binary(binary: str, named: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return that a tool which is more than one workload needs its test beside it."""
    return {"if": {"properties": {"workload": {"const": binary}}, "required": ["workload"]}, "then": {"anyOf": named}}


def _rule(rule: Any, classes: Mapping[str, type[Workload]], named: list[Mapping[str, Any]]) -> Any:
    """Return a rule of the job's, in which a test stands for the workload that it is."""
    given = [{"required": ["workload"]}, *named]
    if rule == {"oneOf": [{"required": ["operations"]}, {"required": ["workload"]}]}:
        return {"oneOf": [{"required": ["operations"]}, {"anyOf": given}]}
    if rule == {"dependentRequired": {"params": ["workload"]}}:
        return {"if": {"required": ["params"]}, "then": {"anyOf": given}}
    if isinstance(rule, dict) and isinstance(rule.get("allOf"), list):
        return {"allOf": [_of_workload(one, classes) for one in rule["allOf"]]}
    return rule


def _of_workload(part: dict[str, Any], classes: Mapping[str, type[Workload]]) -> dict[str, Any]:
    """Return what holds for one workload, wherever and however it is named."""
    name = part["if"]["properties"]["workload"]["const"]
    one = classes[name]
    params = part["then"]["properties"]["params"]
    old = {_pattern(own): shape for own, shape in params["properties"].items()}
    for word, own in one.tool_names.items():
        old[_pattern(word)] = params["properties"][own]
    for word, (harmless, why) in one.tool_dropped.items():
        # YAML 1.1 reads ``on`` as a truth, and an editor may, too.
        old[_pattern(word)] = {"enum": [harmless, True], "description": why}
    for word, meanings in one.tool_meanings.items():
        if word != "test":
            old[_pattern(word)] = {"enum": [*meanings, True, False]}
    when = [part["if"]]
    properties = params["properties"]
    if one.tool_test:
        is_test = {"type": "string", "pattern": _said(re.escape(one.tool_test))}
        valued = {"patternProperties": {_TEST: is_test}}
        inner = {"type": "object", **_HAS_TEST, **valued}
        when += [{**_HAS_TEST, **valued}, {"properties": {"params": inner}, "required": ["params"]}]
        if "test" not in properties:
            old[_TEST] = is_test
        else:
            properties = {**properties, "test": {"anyOf": [properties["test"], is_test]}}
            old.pop(_pattern("test"))
    then = {**params, "properties": properties, "patternProperties": old}
    return {"if": {"anyOf": when}, "then": {"properties": {"params": then}}}


def _pattern(name: str) -> str:
    """Return what a parameter may be called: with dashes in front, and dashes for underscores."""
    return f"^-*{'[-_]'.join(re.escape(word) for word in re.split('[-_]', name))}$"


def _said(tests: str) -> str:
    """Return how a test may be named: alone, or as the file of its script."""
    return rf"^(.*/)?({tests})(\.lua)?$"
