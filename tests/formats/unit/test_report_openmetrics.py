"""The OpenMetrics report: read by prometheus_client's own parsers."""

import io
import re
from types import SimpleNamespace

import pytest
from builders import footer, header, lifecycle_run, treatment_wire, write_report
from documents import ROOT
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus
from verdict_builders import comparison, engine_verdicts

from bench_common.stats.reader import StatsFile
from bench_features.formats.openmetrics import FAMILIES, OpenMetricsReport
from bench_master.analysis.report_types import ThresholdReport
from bench_master.reports import ReportSource


def families(text):
    """Return the samples of each family, which both parsers read alike; no sample is there twice."""
    found = {}
    for family in read_openmetrics(text):
        found[family.name] = [(sample.labels, sample.value) for sample in family.samples]
        keys = [(sample.name, *sorted(sample.labels.items())) for sample in family.samples]
        assert len(keys) == len(set(keys))
    prometheus = {
        one.name: [(sample.labels, sample.value) for sample in one.samples] for one in read_prometheus(text)
    }
    assert prometheus == found
    return found


def written(source):
    out = io.StringIO()
    OpenMetricsReport().write(source, out)
    return out.getvalue()


def value(samples, **labels):
    (found,) = [number for own, number in samples if labels.items() <= own.items()]
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return ReportSource(StatsFile(lifecycle_run(tmp_path_factory.mktemp("metrics") / "run.stats.gz")))


def test_medians_and_counts_are_those_of_the_report(source):
    """With the labels of the treatment; times are in seconds."""
    found = families(written(source))
    docker = source.document.treatments[0]
    jobs = found["weighbridge_jobs"]
    assert value(jobs, engine="docker", outcome="done") == 2
    assert value(jobs, engine="docker", outcome="failed") == 1
    medians = found["weighbridge_operation_median_seconds"]
    assert value(medians, engine="docker", operation="exec") == docker.operations["exec"].percentiles_s["p50"]
    assert value(found["weighbridge_operation_errors"], engine="docker", operation="exec") == 1
    metric = value(found["weighbridge_metric_median"], engine="docker", metric="events_per_second", unit="events/s")
    assert metric == docker.metrics["events_per_second"].median
    assert value(found["weighbridge_run_complete"], state="complete") == 1
    assert value(found["weighbridge_run_began_timestamp_seconds"]) == 1_767_323_045
    assert value(found["weighbridge_run_duration_seconds"]) == 60


def test_effects_have_their_interval_only_where_it_is_one(source):
    """The range of two rounds is no 95 % interval, and has no ends; a difference has a unit."""
    few = families(written(source))
    assert "weighbridge_effect_ratio" in few
    assert "weighbridge_effect_ratio_low" not in few
    apart = comparison("podman", "slower", 0.5, 0.25, None, scale="difference")
    verdicts = engine_verdicts(comparisons=(*engine_verdicts().comparisons, apart))
    document = replace(source.document, verdicts=verdicts)
    found = families(written(SimpleNamespace(document=document, gates=[], exit_code=lambda: 0)))
    assert value(found["weighbridge_effect_ratio"], engine="podman", measure="job.p50") == 1.21
    assert value(found["weighbridge_effect_ratio_low"], engine="podman") == 1.182
    assert value(found["weighbridge_effect_ratio_high"], engine="podman") == 1.239
    assert value(found["weighbridge_effect_rounds"], engine="crun") == 20
    assert value(found["weighbridge_effect_verdict"], engine="crun", verdict="same") == 1
    assert value(found["weighbridge_effect_difference"], engine="podman", unit="s") == 0.5
    assert "weighbridge_effect_difference_high" not in found  # an open end has no sample


def test_a_threshold_that_could_not_be_judged_has_not_failed(source):
    """An alert on failed thresholds must not fire for a measure that an incomplete run lacks."""
    thresholds = [
        ThresholdReport("a", "t", 1.0, passed=True, message=""),
        ThresholdReport("b", "t", 1.0, passed=False, message=""),
        ThresholdReport("c", "t", None, passed=False, message=""),
    ]

    def counts(**changes):
        document = replace(source.document, thresholds=thresholds, **changes)
        found = families(written(SimpleNamespace(document=document, gates=[], exit_code=lambda: 0)))
        return {labels["state"]: number for labels, number in found["weighbridge_thresholds"]}

    assert counts() == {"passed": 1, "failed": 2, "undecided": 0}
    assert counts(incomplete=["interrupted"]) == {"passed": 1, "failed": 1, "undecided": 1}


def test_no_text_of_a_run_breaks_the_lines(tmp_path):
    """Names of labels become valid and stay different; values with quotes, newlines and escapes come back."""
    labels = {"engine": 'a"b\\c\nd', "a-b": 1, "a_b": True, "outcome": "x", "9": None, "__x": "\x1b[2J"}
    head = header([treatment_wire(0, labels, ("start",)), treatment_wire(1, {"engine": "native"})], [(0, 0, False)])
    head["scenario"]["name"] = '"} 1\nevil 2\n# EOF'
    path = lifecycle_run(tmp_path / "evil.stats.gz", head=head, foot=footer(status="interrupted"))
    out = io.StringIO()
    write_report(path, out, "openmetrics")
    found = families(out.getvalue())
    assert "evil" not in found
    own, _ = found["weighbridge_jobs_per_second"][0]
    assert own["scenario"] == '"} 1 evil 2 # EOF'
    assert own["engine"] == 'a"b\\c d'
    assert (own["a_b"], own["a_b_"], own["label_outcome"], own["label_9"]) == ("1", "true", "x", "")
    assert own["label___x"] == "\\u001b[2J"
    assert value(found["weighbridge_run_complete"], state="incomplete") == 0


def test_the_families_that_are_documented_exist():
    """docs/user-guide.rst names those that alerts need."""
    text = (ROOT / "docs" / "user-guide.rst").read_text(encoding="utf-8")
    named = set(re.findall(r"``(weighbridge_\w+)``", text))
    assert named
    assert named <= {f"weighbridge_{name}" for name in FAMILIES}


def test_every_family_has_a_help_text_and_a_unit_that_its_name_ends_with():
    """As OpenMetrics demands of a unit."""
    for name, (unit, about) in FAMILIES.items():
        assert about.endswith(".")
        assert not unit or name.endswith(f"_{unit}")
