"""The references of scenario keys, inventory keys, report fields and messages, from the JSON schemas of these."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import msgspec

from bench_common import messages
from bench_common.fields import KIB, VERSION
from bench_features.fleet.inventory import inventory_format, launcher_names
from bench_master.analysis.report_schema import field_descriptions, report_schema
from bench_master.scenario import scenario_schema
from reference_pages.rst import document, entry, heading, paragraph, plain

_PATTERNS = (("ns)?)", "duration"), ("KiB", "size"), ("second|minute", "rate"))
"""What texts are, by a part of the pattern that they must match."""
_LARGE = 1 << 53
"""Bounds from here on say no more than that a number is stored in 64 bits."""
_MODULES = ("messages", "fields", "host_info", "records", "requirements", "treatment")
"""The modules of bench_common that declare what messages are made of."""

_VALUES = """The key decides the type of its value:

===========  =======================================================================================================
text         Exactly as written: ``no``, ``010``, ``12:30``, ``1e3`` and ``null`` stay text where the key takes text.
number,      As in JSON. What another reader of YAML might guess is refused: ``010``, ``1_000``, ``12:30``, numbers
boolean      in quotes; ``yes``, ``no``, ``on``, ``off``.
size         ``512MiB``, ``2GiB``, ``512MB``, or a whole number of bytes.
duration     ``500ms``, ``90s``, ``1h30m``, or a number of seconds; units from large to small.
command      A list of words, ``[sleep, "5"]``; or text, which is split into words as a shell would split it. No
             shell runs it: for one, write ``[sh, -c, "a | b"]``.
===========  =======================================================================================================

The same units hold in keys, options, thresholds and gates:

==========  ========================================================================================================
unit of     spelled
==========  ========================================================================================================
time        ``d h m min s ms us µs ns``
size        ``B``, binary ``KiB MiB GiB TiB`` and, as engines have it, ``Ki Mi Gi Ti K M G T k m g t``, decimal
            ``kB KB MB GB TB``
rate        a number of times by a unit of time: ``200/s``, ``30/min``, ``5/h``, ``2/d``; also ``sec second minute
            hour day``
share       ``%``: ``3%`` is a margin, ``margin: 0.03`` is refused
==========  ========================================================================================================

``m`` is a minute of a time, and 1024 * 1024 bytes of a size. A file is one YAML document of at most 1 MiB, without
duplicate keys and tags."""


def scenario_page() -> str:
    """Return the document of scenario keys."""
    schema = scenario_schema()
    parts = schema["$defs"]
    keys = {re.sub(r"^services\.\w+", "services.NAME", key) for key in parts.pop("matrix")["properties"]}
    matrix = ", ".join(f"``{key}``" for key in sorted(keys))
    del parts["cell"]
    _name_once(parts["job"], schema, "at the top level")
    _name_once(parts["service"], parts["container"], "of a container")
    _name_once(parts["service-of-your-own"], parts["container"], "of a container")
    return document(
        "Scenario keys",
        paragraph(
            "Every key with its type, default and meaning, from the schema that ``bench-master validate-scenario "
            "--schema`` prints. `Scenarios <../scenarios.rst>`_ explains their use."
        ),
        heading("How values are written"),
        _VALUES,
        heading("At the top level"),
        *_entries(schema, required="required"),
        *_sections(parts, required="required"),
        heading("matrix", target="part-matrix"),
        "Each of these keys takes a list of values there:",
        paragraph(f"{matrix}."),
        heading("cell", target="part-cell"),
        paragraph("The keys of a matrix with one value each, as in ``baseline``, ``aa`` and the matrix's lists."),
    )


def inventory_page() -> str:
    """Return the document of the keys of a host in an inventory."""
    hosts = inventory_format(launcher_names()).schema()["properties"]["hosts"]
    (host,) = (shape for shape in hosts["additionalProperties"]["anyOf"] if "properties" in shape)
    return document(
        "Inventory keys",
        paragraph("The keys of ``hosts.yaml``. `The fleet <../fleet.rst>`_ explains their use."),
        heading("Keys of a host"),
        "All but the first three are also keys of a group, and of ``defaults``.",
        *_entries(host, required="required"),
    )


def report_page() -> str:
    """Return the document of the JSON report's fields."""
    return document(
        "Fields of reports",
        paragraph(
            "The fields of ``--format json``, from the schema that ``bench-master report-scenario --schema`` prints. "
            "Times are in seconds unless a name or a field says otherwise. "
            "`Reports <../user-guide.rst#reports>`_ explains them."
        ),
        *_sections(report_schema()["$defs"], optional="may be absent"),
    )


def message_page() -> str:
    """Return the document of the messages between master and workers."""
    kinds = {kind.__name__: kind for kind in messages.TYPES.values()}
    _, shapes = msgspec.json.schema_components(
        kinds.values(), schema_hook=lambda _: {"type": "object"}, ref_template="#/$defs/{name}"
    )
    modules = [import_module(f"bench_common.{name}") for name in _MODULES]
    described = {kind: fields for module in modules for kind, fields in field_descriptions(module).items()}
    for name, shape in shapes.items():
        kind = kinds.get(name) or next(getattr(module, name) for module in modules if hasattr(module, name))
        if "prefixItems" in shape:
            shape["properties"] = dict(zip(kind.__struct_fields__, shape["prefixItems"], strict=True))
            shape["required"] = list(shape["properties"])[: shape["minItems"]]
            shape["description"] += " An array of these values, in this order."
        for key, value in shape["properties"].items():
            owners = (described.get(owner.__name__, {}) for owner in kind.__mro__)
            value["description"] = next((fields[key] for fields in owners if key in fields), "")
        if name in kinds:
            del shape["properties"]["epoch"]
            del shape["properties"]["type"]
            shape["title"] = kind.__struct_config__.tag
            limit = f"From the {kind.sender}, {kind.lane}, at most {kind.max_bytes // KIB} KiB."
            shape["description"] = f"{shape['description']}\n\n{limit}"
    return document(
        "Messages",
        paragraph(
            f"The messages between master and workers, version {VERSION}. A frame is one MessagePack array "
            "``[VERSION, message]``; a message is a map of ``type`` (its title here), ``epoch`` (the worker's "
            "admission; 0 outside of any) and its fields. `Architecture <../architecture.rst>`_ explains their use."
        ),
        *_sections(
            {name: shapes[name] for name in sorted(shapes, key=lambda one: one not in kinds)}, optional="optional"
        ),
    )


def _name_once(part: dict[str, Any], other: Mapping[str, Any], where: str) -> None:
    """Name the keys that a part has in common with another one in its description, and leave their entries out."""
    known = other["properties"]
    common = [key for key, value in part["properties"].items() if known.get(key) == value]
    part["properties"] = {key: value for key, value in part["properties"].items() if key not in common}
    part["description"] = f"These keys are those {where}: {', '.join(f'`{key}`' for key in common)}. Its own are:"


def _sections(shapes: Mapping[str, Any], required: str = "", optional: str = "") -> Iterator[str]:
    """Yield a section for each part of a schema; a part is named by `_shape`."""
    for name, shape in shapes.items():
        if "enum" in shape:
            continue
        yield heading(shape.get("title", name), target=f"part-{name.lower()}")
        yield from (paragraph(plain(text)) for text in shape.get("description", "").split("\n\n") if text)
        keys = list(_entries(shape, required, optional))
        yield from keys or [paragraph(f"Type: {_shape(shape)}.")]


def _entries(part: Mapping[str, Any], required: str = "", optional: str = "") -> Iterator[str]:
    """Yield each key of a part; `required` and `optional` are the words for keys that must and need not be there."""
    fixed = {f"``{key}``": value for key, value in part.get("properties", {}).items()}
    named = {f"what matches ``{key}``": value for key, value in part.get("patternProperties", {}).items()}
    for term, value in (fixed | named).items():
        facts = [_shape(value)]
        if not optional and "default" in value:
            facts.append(f"default ``{_written(value['default'])}``")
        facts.append(required if term.strip("`") in part.get("required", ()) else optional)
        words = plain(value.get("description", "")).rstrip(".")
        text = f"{words[:1].upper()}{words[1:]}. " if words else ""
        yield entry(term, f"{text}Type: {'; '.join(filter(None, facts))}.")


def _written(value: Any) -> str:
    """Return a default as it is written in YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    if value == "":
        return '""'
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(one)}" for key, one in value.items()) + "}"
    return str(value)


def _shape(part: Mapping[str, Any]) -> str:
    """Return in a few words what a value is."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return "a `code <reasons.rst>`__" if name == "Code" else f"`{name} <part-{name.lower()}_>`__"
    if "const" in part:
        return f"``{_written(part['const'])}``"
    if "enum" in part:
        return "one of " + ", ".join(f"``{_written(one)}``" for one in part["enum"])
    if "anyOf" in part or "oneOf" in part:
        return _alternatives(part.get("anyOf") or part["oneOf"])
    kind = part.get("type")
    if isinstance(kind, list):
        # The loader of scenarios keeps text as it was written, so that any scalar is text.
        return f"{_shape({**part, 'type': kind[0]})} or ``null``" if kind[1:] == ["null"] else "text"
    if kind in ("array", "object"):
        return _collection(part)
    if kind in ("integer", "number"):
        return ("whole number" if kind == "integer" else "number") + _bounds(part)
    if kind == "string":
        text = "bytes" if "contentEncoding" in part else "text"
        text += f" of at most {part['maxLength']:,}{' characters' * (text == 'text')}" if "maxLength" in part else ""
        return next((word for sign, word in _PATTERNS if sign in part.get("pattern", "")), text)
    return {"boolean": "``true`` or ``false``", "null": "``null``"}.get(str(kind), "value")


def _collection(part: Mapping[str, Any]) -> str:
    if part["type"] == "array":
        return f"list, each {_shape(part['items'])}" if part.get("items") else "list"
    values = part.get("additionalProperties")
    return f"mapping of names, each to {_shape(values)}" if isinstance(values, dict) else "mapping"


def _alternatives(parts: list[Mapping[str, Any]]) -> str:
    """Return alternatives once each; where text is one of them, other scalars are texts, too."""
    shapes = list(dict.fromkeys(_shape(part) for part in parts))
    words = {"duration", "size", "rate"} & set(shapes)
    if words:
        shapes = [one for one in shapes if "number" not in one]
    elif "text" in shapes and len(shapes) > 2:  # noqa: PLR2004  text or null is one thing
        shapes = [one for one in shapes if "number" not in one and one not in ("``true`` or ``false``", "``null``")]
    return " or ".join(shapes)


def _bounds(part: Mapping[str, Any]) -> str:
    low, high = part.get("minimum"), part.get("maximum")
    words = [f"above {part['exclusiveMinimum']:g}"] if "exclusiveMinimum" in part else []
    if low is not None and low > -_LARGE:
        words.append(f"from {low:,}")
    if high is not None and high < _LARGE:
        words.append(f"to {high:,}")
    return " ".join(["", *words])
