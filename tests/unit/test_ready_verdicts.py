"""Each ready scenario ends with its verdicts, or its report says why there is none."""

import pytest
from builders import S, StatsBuilder, footer, header, host, treatment_wire

from bench_common.records import ticket_of
from bench_common.stats.reader import StatsFile
from bench_master.analysis.comparisons import find_pairs
from bench_master.reports import ReportSource
from bench_master.reports.text import lines
from bench_master.scenario import builtin_scenarios
from bench_master.scenario.load import load_scenario

COMPARED = {
    "concurrency": "Engines against docker",
    "engines": "Engines against native",
    "esxi-vs-hyperv/cpu": "Engines against docker",
    "esxi-vs-hyperv/fileio": "Engines against docker",
    "esxi-vs-hyperv/memory": "Engines against docker",
    "gvisor-platforms": "gVisor platform against systrap",
    "host/boot": "Concurrency against 15",
    "host/commit": "BYTES against 0",
    "host/packing": "Concurrency against 15",
    "lifecycle": "Engines against docker",
    "mysql-on-docker/oltp": "Engines against native",
    "objects/engines": "Jobs against native",
    "objects/quick": "Engines against swift",
    "objects/ssbench-large": "Engines against swift",
    "objects/ssbench-medium": "Engines against swift",
    "objects/ssbench-small": "Engines against swift",
    "objects/swift-vs-s3": "Engines against swift",
    "objects/which-store": "Jobs against versitygw",
    "quickstart": "Engines against docker",
    "remote-database": "Engines against docker",
    "vm-docker-bench/ab": "Concurrency against 4",
    "vm-docker-bench/fileio": "Jobs against fileio",
}
"""What each scenario that has something to compare asks."""
ALONE = {
    "host/density": "only one treatment ran",
    "host/reboot": "only one treatment ran",
    "noop": "only one treatment ran",
    "vm-docker-bench/blogbench": "no two treatments share a job",
    "vm-docker-bench/cpu": "only one treatment ran",
    "vm-docker-bench/iibench": "only one treatment ran",
    "vm-docker-bench/mbw": "only one treatment ran",
    "vm-docker-bench/oltp": "only one treatment ran",
}
"""Why the others have no verdict."""


def labels_of(name):
    return {index: dict(one.labels) for index, one in enumerate(load_scenario(name).treatments)}


@pytest.mark.parametrize("name", builtin_scenarios())
def test_a_ready_scenario_compares_or_says_why_not(name, tmp_path):
    """By the factor that its question is about; a report of a single treatment, or of unlike jobs, has the reason."""
    scenario, labels = load_scenario(name), labels_of(name)
    pairs, question = find_pairs(labels, {key: str(value) for key, value in scenario.baseline.items()})
    if name in COMPARED:
        assert question == COMPARED[name]
        assert pairs
        return
    assert pairs == []
    treatments = [treatment_wire(index, own) for index, own in labels.items()]
    builder = StatsBuilder(tmp_path / "x.stats.gz", header(treatments, [(index, 0, False) for index in labels]))
    builder.add("host", host())
    for index in labels:
        builder.add_jobs({"ticket": ticket_of(index), "treatment": index, "trial": index, "end_ns": 1001 * S})
    text = " ".join(lines(ReportSource(StatsFile(builder.close(footer()))).document))
    assert f"No verdict: {ALONE[name]}" in " ".join(text.split())


def test_a_baseline_may_lack_labels_that_mean_nothing_to_it():
    """The stock server has neither network nor storage, and each of the twelve containers is compared with it."""
    labels = labels_of("mysql-on-docker/oltp")
    pairs, _ = find_pairs(labels, {"engine": "native"})
    assert len(pairs) == 12
    assert all(labels[pair.a]["buffer_pool_size"] == labels[pair.b]["buffer_pool_size"] for pair in pairs)
    assert len({pair.group for pair in pairs}) == 12
