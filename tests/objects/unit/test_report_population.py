"""What the report says of objects that were made before the first trial and deleted after the last one."""

from __future__ import annotations

import io
import json
from pathlib import Path

from builders import footer, header, lifecycle_run, treatment_wire, write_report

from bench_common.stats.reader import StatsFile
from bench_common.stats.writer import StatsWriter
from bench_master.run_data.measured import MeasuredRun

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
    (made,) = (line for line in lines if line[1:3] == ["made", "before"])
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
        "engine=swift: 1 object was not deleted after the last trial: b: http-503; delete what is left with "
        "`bench-master cleanup-containers --store swift --run 20260102-030405-abcdef --yes`"
    ) in warnings


def test_objects_that_were_overwritten_are_told(tmp_path: Path) -> None:
    """Somebody made them under names of the population: the clean-up deletes them, too."""
    path = _run(
        tmp_path / "a.stats", {**FILLED, "worker": 0, "objects": 10, "failed": 0, "seconds": 2.0, "replaced": 2}
    )
    document = json.loads(_text(path, "json"))
    assert document["treatments"][0]["population"][0]["replaced"] == 2
    assert any(
        one.startswith("engine=swift: 2 objects with names of its population had another content: overwritten")
        for one in document["warnings"]
    )


def test_a_treatment_that_lacks_objects_which_its_baseline_has_gets_no_verdict(tmp_path: Path) -> None:
    """A worker that came back made its part anew: what it then made counts."""
    lacking = {**FILLED, "worker": 0, "objects": 20, "failed": 20, "seconds": 2.0}
    whole = {**lacking, "objects": 40, "failed": 0}
    for number, (events, missing) in enumerate((((whole,), 0), ((lacking,), 20), ((lacking, whole), 0))):
        path = _run(tmp_path / f"{number}.stats", *events)
        assert MeasuredRun(StatsFile(path)).sums.populations.missing(0) == missing
        (compared,) = json.loads(_text(path, "json"))["verdicts"]["comparisons"]
        reasons = {one["code"]: one["data"] for one in compared["reasons"]}
        assert ("populations-differ" in reasons) == bool(missing)
        if missing:
            assert compared["verdict"] == "refused"
            assert (reasons["populations-differ"]["missing"], reasons["populations-differ"]["other_missing"]) == (
                0,
                20,
            )


def test_a_damaged_event_is_left_out_and_other_runs_have_no_such_section(tmp_path: Path) -> None:
    damaged = ({"treatment": "x"}, {"seconds": None}, {"phase": "other"}, {"objects": 1.5})
    whole = {**FILLED, "worker": 0, "objects": 1, "failed": 0, "seconds": 1.0}
    path = _run(tmp_path / "a.stats", *({**whole, **change} for change in damaged))
    assert json.loads(_text(path, "json"))["treatments"][0]["population"] == []
    assert "made before the first trial" not in _text(lifecycle_run(tmp_path / "b.stats"))
