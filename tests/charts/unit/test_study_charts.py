"""Each chart of the published studies can be had from a run of its ready scenario, as ``docs/workloads.rst`` says.

The runs here have the plans of the ready scenarios, with fewer rounds, and the values that the studies published: the
single ones where ``tests/data`` has them, else values that spread around the published mean as far as it says.
"""

import shlex
import xml.etree.ElementTree as ET
from functools import cache

import numpy as np
import pytest
from builders import S, StatsBuilder, footer, host
from builders import header as plain_header
from documents import ROOT, study_charts

from bench_common.records import MetricRecord, Outcome, ticket_of
from bench_features.charts import CHART_MODULES
from bench_master.cli import run_command_line
from bench_master.plan import make_plan
from bench_master.run.journal import build_header
from bench_master.scenario.load import load_scenario
from bench_master.scenario.published import matches_labels

DATA = ROOT / "tests" / "data"
ENVIRONMENTS = {"bare-metal": "bare-metal", "hypervisor": "vm", "control": "control"}
"""The environments of vm-docker-bench, and what its files here call them."""
MEASURED = {"cpu": "total_time_s", "fileio": "mib_per_second", "fileio-512m": "mib_per_second"}
"""Jobs of which ``tests/data`` has each value."""
CHARTS = study_charts()


@cache
def values_of(job, environment, metric):
    """Return the values that the study recorded, one for each trial; nothing where they are not in ``tests/data``."""
    path = DATA / "vm-docker-bench" / f"{ENVIRONMENTS.get(environment)}-{job}.txt"
    return np.loadtxt(path).tolist() if MEASURED.get(job) == metric and path.exists() else []


def published_mean(scenario, labels, metric, place):
    """Return mean and deviation of the published figure that stands for a treatment, or invented ones."""
    rows = [row for row in (scenario.published or {}).get("rows", ()) if row["metric"] == metric]
    fitting = [row for row in rows if matches_labels(row, labels)]
    fitting = [row for row in fitting if row["where"] == labels["environment"]] or fitting
    if not fitting:
        return 100.0 + place, 2.0
    row = fitting[0 if labels["engine"] == "docker" else -1]
    return row["mean"], row["stddev"] or row["mean"] * 0.01


def study_run(folder, name, extra=None):
    """Write the stats file of a run of a ready scenario, with the published values, and return its path."""
    overrides = ["environments=[bare-metal, hypervisor, control]"] if name.startswith("vm-docker-bench/") else []
    scenario = load_scenario(name, overrides)
    plan = make_plan(scenario, 7)
    kept = [trial for trial in plan.trials if trial.block < 25]
    head = build_header(
        scenario, plan, run_id="20260102-030405-abcdef", argv=["bench-master"], noop=extra == "--noop",
        environments=["lab"], options={}, trial_jobs=[1 for _ in plan.treatments],
    )  # fmt: skip
    clock = plain_header([], [])["clock"]
    head |= {"clock": clock, "trials": [[one.treatment, one.block, one.warmup] for one in kept]}
    builder = StatsBuilder(folder / "run.stats.gz", head).add("host", host(0))
    random, now, ticket = np.random.default_rng(1), 1001 * S, 0
    most = 4000 // len(kept)
    for number, trial in enumerate(kept):
        entry = head["treatments"][trial.treatment]
        labels, names = entry["labels"], entry["operation_names"]
        builder.add("event", {"at_ns": now, "kind": "trial-begin", "trial": number, "workers": [0]})
        rows = [
            {"ticket": ticket_of(ticket + k), "treatment": trial.treatment, "trial": number,
             "start_ns": now + k * S // 8, "end_ns": now + k * S // 8 + int(random.lognormal(0, 0.4) * S / 8)}
            for k in range(1 if entry["metrics"] else most)
        ]  # fmt: skip
        if number == 3:
            rows[0]["outcome"] = Outcome.FAILED
        builder.add_jobs(*rows)
        builder.add_operations(
            *(
                {key: row[key] for key in ("ticket", "treatment", "trial", "start_ns")}
                | {"operation": k, "duration_ns": (row["end_ns"] - row["start_ns"]) // (len(names) + 1)}
                for row in rows for k in range(len(names))
            )
        )  # fmt: skip
        metrics = []
        for metric in entry["metrics"]:
            own = values_of(labels.get("job"), labels.get("environment"), metric)
            mean, deviation = published_mean(scenario, labels, metric, trial.treatment)
            value = own[trial.block] if trial.block < len(own) else max(0.01, random.normal(mean, deviation))
            metrics.append(MetricRecord(rows[0]["ticket"], trial.treatment, number, metric, value))
        if metrics and number != 3:
            builder.writer.metrics(metrics)
        now, ticket = max(now + S, *(row["end_ns"] for row in rows)) + S // 100, ticket + len(rows)
        builder.add("event", {"at_ns": now, "kind": "trial-end", "trial": number})
    add_samples(builder, now, {entry["engine"] for entry in head["treatments"]} if extra == "--overhead" else ())
    failed = int(len(kept) > 3)
    counts = {"planned": ticket, "done": ticket - failed, "failed": failed, "lost": 0, "aborted": 0}
    return builder.close(footer(counts=counts, duration_s=(now - 1001 * S) / 1e9))


def add_samples(builder, until, engines):
    """Write readings of the host, and of the engines' own processes."""
    times = np.arange(1001 * S, until, S)
    columns = {"time_ns": times, "interval_ns": np.full(len(times), S)}
    parts = {"user": 30.0, "system": 12.0, "iowait": 5.0, "steal": 0.0}
    units = {"time_ns": "ns", "interval_ns": "ns", "memory_used_bytes": "B"}
    busy = {f"cpu_{name}_percent": np.full(len(times), share) for name, share in parts.items()}
    columns |= busy | {"memory_used_bytes": np.linspace(2**30, 2**31, len(times))}
    builder.writer.samples(0, "host", columns, {**dict.fromkeys(busy, "%"), **units})
    for place, engine in enumerate(sorted(engines)):
        own = {
            "rss_bytes": (60 + 20 * place + times % 7).astype(float) * 2**20,
            "cpu_ns": np.full(len(times), S / 50),
        }
        builder.writer.samples(
            0, f"engine:{engine}",
            {"time_ns": times, "interval_ns": columns["interval_ns"], **own},
            {"time_ns": "ns", "interval_ns": "ns", "rss_bytes": "B", "cpu_ns": "ns"},
        )  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a run of a ready scenario, which is written when a test first asks for it."""
    return cache(lambda name, extra: study_run(tmp_path_factory.mktemp("study"), name, extra or None))


def test_the_document_lists_every_study():
    """Each of the five has charts, and each ready scenario of a study has one."""
    scenarios = {scenario for scenario, *_ in CHARTS}
    assert len(CHARTS) == 27
    studies = {f"{path.parent.name}/{path.stem}" for path in (ROOT / "scenarios").glob("*/*.yaml")}
    assert {name for name in studies if name.split("/")[0].split("-")[0] in ("vm", "esxi", "mysql")} <= scenarios


@pytest.mark.parametrize(("scenario", "extra", "chart"), CHARTS)
def test_a_chart_can_be_drawn(runs, tmp_path, capsys, scenario, extra, chart):
    """The command of the table draws a chart, whose caption says n, what failed and what the axes are."""
    words = shlex.split(chart)
    assert words[0] in CHART_MODULES
    drawn = tmp_path / "chart.svg"
    command = ["report-scenario", "-s", str(runs(scenario, extra)), "--format", "svg", "-f", str(drawn)]
    assert run_command_line([*command, "--chart", *words]) in (0, 1), capsys.readouterr().err
    root = ET.fromstring(drawn.read_text(encoding="utf-8"))
    caption = " ".join(child.text for child in root.iter() if child.tag.endswith("text") and child.text)
    for part in ("n =", "failed", "axis") if words[0] not in ("host", "forest", "overhead") else ("axis",):
        assert part in caption, caption
    assert "begins at 0" in caption or "logarithmic" in caption
    assert "begins at" not in caption.replace("begins at 0", "")
    if words[0] in ("metrics", "overhead") or "--metric" in words:
        assert "is better" in caption
