"""Our figures beside published ones: the same parameters on other machines, so nothing is divided by anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench_master.scenario.keys_run import FULL
from bench_master.scenario.published import FIGURES, matches_labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CAUTION: Final = (
    "Measured by others, on other machines and with other versions. The figures stand beside each other for "
    "orientation; no difference between them is one of engines or environments."
)


def published_section(header: Mapping[str, Any], treatments: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the section of the report document: for each treatment and metric our figures and the published ones.

    None where the run's scenario names none. `treatments` are those of the document. A metric that we did not measure
    has None in the place of our figures. What the hosts' CPUs did is found under its name like a metric.
    """
    published = header.get("published")
    if not published:
        return None
    scale = header.get("scenario", {}).get("scale", FULL)
    shrunk = (
        "" if scale == FULL else f" This run was at scale {scale}, not with the parameters of the published ones."
    )
    return {
        **{key: published[key] for key in ("title", "source", "file")},
        "caution": CAUTION + shrunk,
        "tables": [table for entry in treatments for table in _tables(published["rows"], entry)],
    }


def _tables(rows: Sequence[Mapping[str, Any]], entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    ours = [row for row in rows if matches_labels(row, entry["treatment"])]
    for name in dict.fromkeys(row["metric"] for row in ours):
        metric = entry["metrics"].get(name) or (entry["host_cpu"] or {}).get(name)
        theirs = [row for row in ours if row["metric"] == name]
        measured = bool(metric and metric["n"])
        yield {
            "treatment": entry["title"],
            "labels": dict(entry["treatment"]),
            "metric": name,
            "unit": theirs[0]["unit"],
            "direction": metric["direction"] if metric else None,
            "ours": {figure: metric[figure] for figure in FIGURES} if metric and measured else None,
            "published": [{key: row[key] for key in ("where", *FIGURES, "source", "note")} for row in theirs],
        }


def published_rows(section: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the rows of the CSV report: the labels of the treatment, with the published place as environment."""
    for one in section["tables"] if section else ():
        for row in one["published"]:
            yield {
                "labels": {**one["labels"], "environment": row["where"]},
                "scenario": section["title"] if section else "",
                "kind": "published",
                "name": one["metric"],
                "unit": one["unit"],
                "direction": one["direction"],
                **{figure: row[figure] for figure in ("n", "mean", "stddev", "min", "max")},
                "p50": row["median"],
                "note": row["note"],
            }
