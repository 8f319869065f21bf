"""What the report says of objects that were made before the first trial and deleted after the last one."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

from builders import footer, header, lifecycle_run, operation_report, treatment_report, treatment_wire, write_report
from msgspec.structs import replace

from bench_common.stats.reader import StatsFile
from bench_common.stats.writer import StatsWriter
from bench_master.analysis.document import build_document
from bench_master.analysis.transfer_types import StoreOperationReport, TransfersReport
from bench_master.analysis.treatment_types import OperationReport, TreatmentReport
from bench_master.reports.markdown import MarkdownReport
from bench_master.reports.text import lines
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


def _moving(engine: str, **errors: int) -> TreatmentReport:
    """Return the report on a treatment that creates and deletes objects."""
    times = {"p50": 0.012, "p95": 0.04, "p99": 0.05}
    operations = {
        "create": operation_report(n=1500, errors=errors.get("create", 0), percentiles_s=times),
        "delete": operation_report(n=20, percentiles_s=times, p99_marked=True),
        "job": operation_report(n=1520, errors=errors.get("create", 0), percentiles_s=times),
    }
    by_operation = {
        name: _over_all_sizes(operations[name], mb_per_s, {"http-503": failed} if failed else {})
        for name, mb_per_s, failed in (("create", 21.5, errors.get("create", 0)), ("delete", 0.0, 0))
    }
    moved = TransfersReport(
        content_bytes=1 << 30, mb_per_s=21.5, retries=0, redrawn=0, endpoints=(), operations={},
        by_operation=by_operation,
    )  # fmt: skip
    return treatment_report(treatment={"engine": engine}, operations=operations, objects=moved, jobs_per_s=88.0)


def _over_all_sizes(times: OperationReport, mb_per_s: float, error_kinds: Mapping[str, int]) -> StoreOperationReport:
    given = {"per_s": 88.0, "mb_per_s": mb_per_s, "error_kinds": error_kinds, "first_byte": None, "seconds": None}
    return StoreOperationReport(**{
        name: given.get(name, getattr(times, name, 0)) for name in StoreOperationReport.__struct_fields__
    })  # fmt: skip


def test_the_first_page_has_latencies_errors_and_rates_of_each_store(tmp_path: Path) -> None:
    document = build_document(StatsFile(lifecycle_run(tmp_path / "run.stats.gz")))
    document = replace(document, treatments=[_moving("swift", create=3), _moving("s3")], verdicts=None, errors=[])
    page = list(lines(document))
    rows = [line.split() for line in page[page.index("Operations on the store") :]][2:8]
    assert rows == [
        ["treatment", "operation", "done", "errors", "per", "s", "MB/s", "p50", "p99", "max"],
        ["engine=swift", "create", "1500", "3", "88", "21.5", "12.0", "ms", "50.0", "ms", "n/a"],
        ["engine=swift", "delete", "20", "0", "88", "n/a", "12.0", "ms", "50.0", "ms?", "n/a"],
        ["engine=s3", "create", "1500", "0", "88", "21.5", "12.0", "ms", "50.0", "ms", "n/a"],
        ["engine=s3", "delete", "20", "0", "88", "n/a", "12.0", "ms", "50.0", "ms?", "n/a"],
        ["engine=swift:", "errors:", "3", "x", "http-503", "(create)"],
    ]
    out = io.StringIO()
    MarkdownReport().write(SimpleNamespace(document=document, detail="page"), out)
    assert re.search(r"\| engine=swift \| create +\| +1500 \| +3 \| +88 \| +21.5 \| ", out.getvalue())
    assert "- engine=swift: errors: 3 x http-503 (create)" in out.getvalue()


def test_of_many_operations_the_first_page_has_each_treatment_as_a_whole(tmp_path: Path) -> None:
    document = build_document(StatsFile(lifecycle_run(tmp_path / "run.stats.gz")))
    many = [_moving(f"store{number}") for number in range(8)]
    page = list(lines(replace(document, treatments=many, verdicts=None, errors=[])))
    rows = [line.split() for line in page[page.index("Operations on the store") :]][3:11]
    assert [row[:2] for row in rows] == [[f"engine=store{number}", "job"] for number in range(8)]
