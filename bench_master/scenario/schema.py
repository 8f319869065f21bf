"""The format of a scenario as JSON Schema, so that editors complete and check it while it is written."""

from __future__ import annotations

from typing import Any, Final

from bench_master.scenario.format import scenario_format

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def scenario_schema() -> dict[str, Any]:
    """Return the schema, draft 2020-12, generated from the table that the loader checks with.

    It knows the engines and workloads that are installed here. What relates one part of a scenario to another
    (whether an order of operations can work, say) only the loader sees.
    """
    shapes = scenario_format()
    return {
        "$schema": DIALECT,
        "title": "Weighbridge scenario",
        "description": "What to run, where, how often, in which order.",
        **shapes.scenario.schema(),
    }
