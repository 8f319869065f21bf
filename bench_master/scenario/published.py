"""Published figures: measurements of others with the same parameters, in a table beside a scenario.

``published: published.csv`` names a file in the scenario's folder. Its first lines give the origin (``# title: ...``,
``# source: ...``); a header and a row for each measure follow. Columns other than those below are labels of
treatments: a row belongs to each treatment with the same values. The environment never matches, since no published
machine is ours.
"""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_common.errors import did_you_mean
from bench_common.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_common.treatment import Treatment
    from bench_master.scenario.diagnostics import Diagnostics
    from bench_master.scenario.yaml_tree import SourceLocation

FILE_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]*\.csv$"
STATISTICS: Final = ("n", "mean", "stddev", "min", "median", "max")
_OWN_COLUMNS: Final = frozenset({"where", "metric", "unit", "source", "note", *STATISTICS})
_REQUIRED_COLUMNS: Final = ("where", "metric", "mean")
_COMMENT_KEYS: Final = ("title", "source")
MAX_BYTES: Final = 4 << 20
_NUMBER: Final = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")

Published = dict[str, Any]
"""``title``, ``source``, ``file`` and ``rows``, of which each has ``labels``, ``where``, ``metric`` and figures."""


def read_published(
    file: str, scenario: str, treatments: Sequence[Treatment], place: SourceLocation, findings: Diagnostics
) -> Published | None:
    """Return the figures in `file`, beside the file `scenario`, that belong to one of the treatments.

    A problem is reported at `place`, with the line of the table, and None returned. Figures that match no treatment
    are noted and no error, since a user may have selected other treatments.
    """
    path = Path(scenario).parent / file
    try:
        with open_regular(path) as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES >> 20} MiB: this is not a table of published figures")
        table = _table(content.decode("utf-8"))
    except (OSError, ValueError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        findings.add(place, f"published figures {path}: {reason}", deep=True)
        return None
    ours = [row for row in table["rows"] if any(matches_labels(row, treatment.labels) for treatment in treatments)]
    if treatments and not ours:
        findings.note(f"{place.file}:{place.line}: no row of {path} belongs to a treatment of this scenario")
    return {**table, "file": file, "rows": ours}


def matches_labels(row: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    """Return whether all labels of a row are labels of a treatment; labels that the row leaves empty match any."""
    return all(key in labels and _text(labels[key]) == value for key, value in row["labels"].items())


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _table(text: str) -> Published:
    lines = text.splitlines()
    heads: dict[str, str] = {}
    while len(heads) < len(lines) and lines[len(heads)].startswith("#"):
        key, _, value = lines[len(heads)].lstrip("# ").partition(":")
        if key not in _COMMENT_KEYS or not value.strip() or key in heads:
            raise ValueError(f"line {len(heads) + 1}: expected '# title: ...' or '# source: ...', once each")
        heads[key] = value.strip()
    missing = [key for key in _COMMENT_KEYS if key not in heads]
    if missing:
        raise ValueError(f"'# {missing[0]}: ...' is missing above the table: figures need a source")
    reader = csv.DictReader(lines[len(heads) :], restkey="")
    columns = list(reader.fieldnames or ())
    for name in _REQUIRED_COLUMNS:
        if name not in columns:
            raise ValueError(f"line {len(heads) + 1}: the column '{name}' is missing{did_you_mean(name, columns)}")
    rows = [_row(row, len(heads) + reader.line_num) for row in reader]
    return {**heads, "rows": rows}


def _row(cells: Mapping[str, Any], line: int) -> dict[str, Any]:
    if "" in cells or None in cells.values():
        raise ValueError(f"line {line}: more or fewer cells than the header has columns")
    row: dict[str, Any] = {
        "labels": {key: value for key, value in cells.items() if key not in _OWN_COLUMNS and value},
        **{key: cells.get(key, "") for key in ("where", "metric", "unit", "source", "note")},
    }
    for name in STATISTICS:
        row[name] = _number(cells.get(name, ""), name, line)
    if not row["where"] or not row["metric"] or row["mean"] is None:
        raise ValueError(f"line {line}: 'where', 'metric' and 'mean' cannot be empty")
    return row


def _number(cell: str, name: str, line: int) -> float | int | None:
    if not cell:
        return None
    value = float(cell) if _NUMBER.fullmatch(cell) else math.nan
    if not math.isfinite(value) or (name == "n" and value != int(value)):
        raise ValueError(f"line {line}: {cell!r} is not a number ('{name}')")
    return int(value) if name == "n" else value
