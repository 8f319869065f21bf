"""The studies' small profiles, end to end: what somebody runs with one command, in less than a minute each."""

import pytest
from workspace import require_images

from bench_master.scenario import builtin_scenarios

pytestmark = pytest.mark.docker

STUDIES = [name for name in builtin_scenarios() if name.startswith(("esxi-vs-hyperv/", "vm-docker-bench/"))]


@pytest.fixture(scope="module", autouse=True)
def client():
    opened = require_images("weighbridge/sysbench", "weighbridge/mbw", "weighbridge/blogload")
    yield opened
    opened.close()


LONG = ("esxi-vs-hyperv/fileio", "esxi-vs-hyperv/memory", "vm-docker-bench/cpu", "vm-docker-bench/fileio")
"""Those that take more than ten seconds and run the same workloads as others; README's test runs the last but one."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in STUDIES]
)
def test_a_study_s_small_profile_runs_and_prints_its_table(workspace, name):
    """Every job that can be done here is done, and our figures stand beside the published ones."""
    run = workspace.run(name, "--set", "scale=small", seconds=240)
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
