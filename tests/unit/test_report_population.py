"""What the report says of objects that were made before the first trial and deleted after the last one."""

from __future__ import annotations

import io
import json
from pathlib import Path

from builders import footer, header, lifecycle_run, treatment_wire, write_report

from bench_common.stats.writer import StatsWriter

FILLED = {"kind": "objects", "treatment": 0, "phase": "populate", "found": 5, "content_bytes": 4096, "reason": ""}


def _run(path: Path, *events: dict[str, object]) -> Path:
    treatments = [treatment_wire(index, {"engine": engine}) for index, engine in enumerate(("swift", "s3"))]
    writer = StatsWriter(path)
    writer.put("header", header(treatments, []))
    for event in events:
        writer.put("event", {"at_ns": 1, **event})
    writer.close(footer())
    return path


def _text(path: Path, name: str = "text") -> str:
    out = io.StringIO()
    write_report(path, out, name)
    return out.getvalue()


def test_each_treatment_has_a_line_for_what_all_workers_made_and_deleted(tmp_path: Path) -> None:
    path = _run(
        tmp_path / "a.stats",
        {**FILLED, "worker": 0, "objects": 10, "failed": 0, "seconds": 2.0},
        {**FILLED, "worker": 1, "objects": 12, "failed": 0, "seconds": 3.5},
        {**FILLED, "worker": 0, "phase": "clear", "objects": 30, "failed": 0, "seconds": 1.0},
    )
    text = _text(path)
    lines = [line.split() for line in text.splitlines()]
    (made,) = (line for line in lines if line[:2] == ["made", "before"])
    assert made[-5:] == ["22", "10", "8KiB", "0", "3.5s"]
    document = json.loads(_text(path, "json"))
    assert [row["seconds"] for row in document["treatments"][0]["population"]] == [2.0, 3.5, 1.0]
    assert document["treatments"][1]["population"] == []


def test_what_failed_is_a_warning_with_its_reason_and_what_to_do(tmp_path: Path) -> None:
    path = _run(
        tmp_path / "a.stats",
        {**FILLED, "worker": 0, "objects": 10, "failed": 3, "seconds": 2.0, "reason": "box/a: timeout: no answer"},
        {**FILLED, "worker": 0, "phase": "clear", "objects": 9, "failed": 1, "seconds": 1.0, "reason": "b: http-503"},
    )
    warnings = json.loads(_text(path, "json"))["warnings"]
    assert "engine=swift: 3 objects were not made before the first trial: box/a: timeout: no answer" in warnings
    assert (
        "engine=swift: 1 object was not deleted after the last trial: b: http-503; "
        "`bench-master cleanup-containers --store` deletes them"
    ) in warnings


def test_a_damaged_event_is_left_out_and_other_runs_have_no_such_section(tmp_path: Path) -> None:
    damaged = ({"treatment": "x"}, {"seconds": None}, {"phase": "other"}, {"objects": 1.5})
    whole = {**FILLED, "worker": 0, "objects": 1, "failed": 0, "seconds": 1.0}
    path = _run(tmp_path / "a.stats", *({**whole, **change} for change in damaged))
    assert json.loads(_text(path, "json"))["treatments"][0]["population"] == []
    assert "made before the first trial" not in _text(lifecycle_run(tmp_path / "b.stats"))
