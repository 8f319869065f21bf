"""`import weighbridge`: a stats file as frames of pandas and polars and as structured arrays."""

import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from builders import MS, S, StatsBuilder, footer, header, host, lifecycle_run, treatment_wire
from deadlines import END_S
from documents import ROOT, literals

import weighbridge
from bench_common.job_rows import TRANSFER_ROW
from bench_common.records import Outcome, ticket_of

TABLES = ("trials", "jobs", "operations", "transfers", "metrics", "samples", "verdicts")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A small run: docker against native."""
    return lifecycle_run(tmp_path_factory.mktemp("frames") / "run.stats.gz")


def test_trials_have_a_row_each_with_labels_counts_and_seconds(path):
    """Trial 6 is docker's whose only job failed; each trial lasts a millisecond longer than its job."""
    trials = weighbridge.load(path).trials()
    assert list(trials.columns) == [
        *("environment", "engine", "trial", "block", "warmup", "begin_s", "duration_s"),
        *("jobs_done", "jobs_failed", "jobs_lost", "jobs_aborted", "job_mean_s"),
    ]
    assert trials.trial.tolist() == list(range(8))
    assert trials.block.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert trials.warmup.tolist() == [True, True, *[False] * 6]
    assert trials.begin_s[0] == 1.0
    assert np.allclose(trials.duration_s - trials.job_mean_s.fillna(0.106), 0.001)
    assert trials.jobs_failed.tolist() == [0, 0, 0, 0, 0, 0, 1, 0]
    measured = trials[~trials.warmup]
    assert measured.groupby("engine", observed=True).job_mean_s.median().round(6).to_dict() == {
        "docker": 0.103,
        "native": 0.0105,
    }


def test_jobs_and_operations_have_names_and_seconds(path):
    """The failed job has a duration, but its operations count in no latency."""
    run = weighbridge.load(path)
    jobs, operations = run.jobs(), run.operations()
    assert jobs.outcome.tolist() == [*["done"] * 6, "failed", "done"]
    assert jobs.worker.unique().tolist() == ["w0"]
    assert jobs.duration_s.round(6).tolist()[:2] == [0.1, 0.0101]
    assert jobs.end_uncertainty_s.round(9).tolist()[:2] == [1e-5, 2e-5]
    assert operations.operation.tolist()[:3] == ["start", "exec", "remove"]
    failed = operations[operations.job_id == 6]
    assert failed.ok.tolist() == [True, False, True]
    assert operations[operations.job_id == 0].duration_s.sum() == pytest.approx(0.1)


def test_metrics_have_their_unit_and_samples_the_trial_that_was_under_way(path):
    """Between trials a reading has no trial, no labels and no warm-up."""
    run = weighbridge.load(path)
    metrics, samples = run.metrics(), run.samples()
    assert metrics.value.tolist() == [500.0, 501.0, 502.0, 503.0, 504.0, 505.0, 507.0]
    assert (metrics.unit.unique().tolist(), metrics.direction.unique().tolist()) == (["events/s"], ["higher"])
    busy = samples[samples.name == "busy_share"]
    assert busy.time_s.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert busy.value.tolist() == [0.0, 0.1, 0.2, 0.3]
    assert busy.trial.isna().tolist() == [False, True, True, True]
    assert busy.engine.tolist()[0] == "docker"
    assert busy.worker.unique().tolist() == ["master"]


def plain(value):
    """Return a value, with None for NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("table", TABLES)
def test_pandas_polars_and_numpy_have_the_same_columns_and_rows(path, table):
    """A text is a text, a null a null and a number the same number in all of them."""
    run = weighbridge.load(path)
    pandas, polars, plain_rows = (getattr(run, table)(library) for library in ("pandas", "polars", "numpy"))
    assert isinstance(polars, pl.DataFrame)
    assert list(pandas.columns) == polars.columns == list(plain_rows.dtype.names)
    assert len(pandas) == len(polars) == len(plain_rows)
    for name in plain_rows.dtype.names:
        expected = [plain(value) for value in plain_rows[name].tolist()]
        assert [plain(value) for value in polars[name].to_list()] == expected
        found = pandas[name].astype(object)
        assert found.where(found.notna(), None).tolist() == expected


def test_transfers_of_an_object_store_have_bytes_and_endpoints(tmp_path):
    """What is unknown, as the bytes of an imported read, is null."""
    head = header([treatment_wire(0, {"engine": "swift", "size": 4}, ("read[tiny]",))], [(0, 0, False)])
    builder = StatsBuilder(tmp_path / "store.stats.gz", head)
    moved = np.zeros(2, TRANSFER_ROW)
    moved["ticket"] = [ticket_of(3), ticket_of(4, 1)]
    moved["ok"], moved["bytes"], moved["endpoint"], moved["retries"] = 1, [4096, -1], [0, 1], [0, 2]
    moved["duration_ns"], moved["last_try_ns"] = 5 * MS, 2 * MS
    builder.writer.transfers(moved)
    transfers = weighbridge.load(builder.close(footer())).transfers("polars")
    assert transfers["size"].to_list() == [4, 4]
    assert transfers["job_id"].to_list() == [3, 4]
    assert transfers["attempt"].to_list() == [0, 1]
    assert transfers["operation"].to_list() == ["read[tiny]"] * 2
    assert transfers["bytes"].to_list() == [4096, None]
    assert (transfers["endpoint"].to_list(), transfers["retries"].to_list()) == ([0, 1], [0, 2])
    assert transfers["duration_s"].to_list() == [0.005, 0.005]


def test_labels_keep_their_types_and_never_hide_a_column(tmp_path):
    """Whole numbers stay numbers, a label that some treatments lack is null there, truths are words."""
    treatments = [
        treatment_wire(0, {"engine": "docker", "trial": "a", "start_s": "x", "threads": 4, "init": True}),
        treatment_wire(1, {"engine": "native", "threads": 8}),
    ]
    builder = StatsBuilder(tmp_path / "labels.stats.gz", header(treatments, [(0, 0, False), (1, 0, False)]))
    trials = weighbridge.load(builder.close(footer()), "polars").trials()
    assert trials["threads"].to_list() == [4, 8]
    assert trials["init"].to_list() == ["true", None]
    assert trials["label_trial"].to_list() == ["a", None]
    assert trials["label_start_s"].to_list() == ["x", None]
    assert trials["trial"].to_list() == [0, 1]
    assert trials["begin_s"].is_nan().all()


def test_jobs_that_never_ran_have_no_times(tmp_path):
    """A lost job has neither a start nor a duration, instead of times that are 0."""
    head = header([treatment_wire(0, {"engine": "native"})], [(0, 0, False)])
    builder = StatsBuilder(tmp_path / "lost.stats.gz", head).add("host", host(0))
    builder.add_jobs(
        {"ticket": ticket_of(0), "start_ns": 1001 * S, "end_ns": 1002 * S},
        {"ticket": ticket_of(1), "outcome": Outcome.LOST, "end_ns": 1003 * S},
    )
    jobs = weighbridge.load(builder.close(footer()), "numpy").jobs()
    assert jobs["outcome"].tolist() == ["done", "lost"]
    assert jobs["start_s"].tolist()[0] == 1.0
    assert np.isnan(jobs["start_s"][1])
    assert np.isnan(jobs["duration_s"][1])


def test_a_notebook_shows_the_verdicts_and_no_markup_of_the_run(tmp_path):
    """Each text of a run is escaped; the state of an incomplete run stands above the table."""
    evil = "<script>alert(1)</script>"
    metric = {"events_per_second": {"unit": "events/s", "direction": "higher"}}
    treatments = [
        treatment_wire(index, {"engine": engine, "note": evil + engine}, ("start", "exec", "remove"), metric)
        for index, engine in enumerate(("docker", "native"))
    ]
    trials = [(index, block, block == 0) for block in range(4) for index in range(2)]
    head = header(treatments, trials)
    head["scenario"]["name"] = evil
    run = weighbridge.load(lifecycle_run(tmp_path / "evil.stats.gz", head=head, foot=footer(status="interrupted")))
    shown = run._repr_html_()
    assert "<script" not in shown
    assert shown.index("INCOMPLETE") < shown.index("<table>")
    assert '<th scope="col">verdict</th>' in shown
    assert "<td>INCONCLUSIVE</td>" in shown
    assert run.run_state == "incomplete"
    assert repr(run).endswith("run 20260102-030405-abcdef, incomplete>")


def test_verdicts_are_a_frame_of_the_comparisons(path):
    """The ratio is that of the JSON report."""
    run = weighbridge.load(path)
    verdicts = run.verdicts()
    (comparison,) = run.document.verdicts.comparisons
    assert verdicts.verdict.tolist() == ["inconclusive"]
    assert verdicts.ratio.tolist() == [comparison.ratio]
    assert verdicts.measure.tolist() == ["job.p50"]


def test_a_file_that_cannot_be_read_is_an_error_with_a_hint(path, tmp_path):
    """It is one family of errors, with the nearest right spelling; so is a library that there is not."""
    with pytest.raises(weighbridge.WeighbridgeError, match=r"did you mean 'run\.stats\.gz'"):
        weighbridge.load(path.with_name("rum.stats.gz"))
    with pytest.raises(
        weighbridge.WeighbridgeError, match=r"unknown library of frames 'panda' .did you mean 'pandas'"
    ):
        weighbridge.load(path, "panda")


def test_a_library_that_is_missing_is_named_with_the_command_that_installs_it(path, monkeypatch):
    """Without any, structured arrays are still there."""
    monkeypatch.setattr(weighbridge, "find_spec", lambda name: object() if name == "numpy" else None)
    run = weighbridge.load(path)
    with pytest.raises(weighbridge.WeighbridgeError, match=r"pip install 'weighbridge\[pandas\]'"):
        run.trials()
    with pytest.raises(weighbridge.WeighbridgeError, match=r"polars is not installed: .*weighbridge\[polars\]"):
        run.trials("polars")
    assert len(run.trials("numpy")) == 8


def test_the_documented_columns_are_those_of_the_tables(path):
    """The docstrings name each column after the labels, and the user guide each table."""
    run = weighbridge.load(path, "numpy")
    for table in ("trials", "jobs", "operations", "transfers", "metrics", "samples"):
        assert f"{table}()" in literals(ROOT / "docs" / "user-guide.rst")
        columns = list(getattr(run, table)().dtype.names)[2:]
        documented = getattr(weighbridge.Results, table).__doc__
        assert [column for column in columns if f"``{column}``" not in documented] == []
        assert re.search(r"labels \+ (\d+)", documented)[1] == str(len(columns))


def test_importing_weighbridge_imports_no_library_of_frames():
    """They take longer to load than most files to read."""
    code = "import sys, weighbridge; print(sorted({'pandas', 'polars', 'pyarrow'} & sys.modules.keys()))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=END_S, check=True)
    assert ended.stdout == "[]\n"


def test_imported_results_have_no_times(tmp_path):
    """Their stamps are no times: neither instants nor durations are made of them."""
    imported = {"at": None, "workload": "sysbench-cpu", "files": []}
    head = header([treatment_wire(0, {"engine": "native"})], [(0, 0, False)], imported=imported)
    builder = StatsBuilder(tmp_path / "imported.stats.gz", head)
    run = weighbridge.load(builder.add_jobs({"start_ns": 5 * S, "end_ns": 7 * S}).close(footer()), "numpy")
    (job,) = run.jobs()
    assert job["outcome"] == "done"
    assert np.isnan([job["start_s"], job["duration_s"], job["end_uncertainty_s"]]).all()
    assert np.isnan(run.trials()["job_mean_s"]).all()


def test_a_damaged_file_is_read_as_far_as_possible(tmp_path):
    """What stands before the damage is in the tables, and the run says that it is damaged."""
    path = lifecycle_run(tmp_path / "run.stats.gz", flush=True)
    path.write_bytes(path.read_bytes()[:-600])
    run = weighbridge.load(path, "numpy")
    with pytest.warns(UserWarning, match=f"{path}: the run is damaged: byte ") as told:
        assert 0 < len(run.jobs()) <= 8
    assert [Path(one.filename).name for one in told] == [Path(__file__).name], "the place is the reader's own line"
    assert len(run.jobs()) <= 8, "it is told once"
    assert run.run_state == "damaged"
    assert "DAMAGED: " in run._repr_html_()
