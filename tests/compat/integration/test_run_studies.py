"""The studies' small profiles, end to end: what somebody runs with one command, in less than a minute each."""

import pytest
from deadlines import LONG_END_S
from documents import study_charts
from workspace import require_images

from bench_common.stats.reader import StatsFile
from bench_features.charts import draw_chart
from bench_features.charts.layout import ChartChoice, ChartSource
from bench_master.reports import ReportSource
from bench_master.scenario import builtin_scenarios

pytestmark = pytest.mark.docker

STUDIES = [name for name in builtin_scenarios() if name.startswith(("esxi-vs-hyperv/", "vm-docker-bench/"))]


@pytest.fixture(scope="module", autouse=True)
def client():
    opened = require_images("weighbridge/sysbench", "weighbridge/mbw", "weighbridge/blogload")
    yield opened
    opened.close()


LONG = (
    *("esxi-vs-hyperv/fileio", "esxi-vs-hyperv/memory"),
    *(f"vm-docker-bench/{name}" for name in ("cpu", "fileio", "oltp", "iibench", "blogbench")),
)
"""Those that take more than ten seconds and run the same workloads as others; README's test runs the last but one."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in STUDIES]
)
def test_a_study_s_small_profile_runs_and_prints_its_table(workspace, name):
    """Every job that can be done here is done, and our figures stand beside the published ones."""
    run = workspace.run(name, "--set", "scale=small", seconds=LONG_END_S)
    document = run.document
    assert document["scenario"]["name"].endswith(" (small)")
    for row in document["treatments"]:
        assert row["skipped"] or row["jobs"]["done"] == row["trials"]["planned"] == row["jobs"]["total"]
    tables = document["published"]["tables"]
    assert tables
    skipped = {row["title"] for row in document["treatments"] if row["skipped"]}
    assert all(table["ours"] or table["treatment"] in skipped for table in tables)
    assert "Published figures ----------------- " in run.details
    assert "This run was at scale small" in run.details
    draw_charts(name, run, document)


def draw_charts(name, run, document):
    """Draw each of the study's charts from this run; a metric of a tool that is not here (blogbench) is left out."""
    source = ReportSource(StatsFile(run.stats))
    metrics = {metric for row in document["treatments"] for metric, found in row["metrics"].items() if found["n"]}
    for scenario, _, chart in study_charts():
        words = chart.split()
        chosen = dict(zip(words[1::2], words[2::2], strict=True))
        if scenario != name or chosen.get("--metric") not in {None, *metrics}:
            continue
        choice = ChartChoice(words[0], chosen.get("--metric"), chosen.get("--by"))
        picture = draw_chart(words[0], ChartSource(source.document, source.run, choice=choice))
        assert picture.boxes
        assert picture.caption
