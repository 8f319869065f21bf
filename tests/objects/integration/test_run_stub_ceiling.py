"""The harness's own ceiling for jobs on objects: a real run against the store in memory that answers at once."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench_features.objects.master.stub_store import stub_store
from bench_master.plan import make_plan
from bench_master.run.ceilings import PROBE, Setup, machine, measure_ceiling, setup_of
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.master_part import part_of
from bench_master.scenario.yaml_tree import Source

JOB = {"objects": {"population": 4, "sizes": "1KiB", "mix": {"create": 1, "read": 1, "delete": 1}}}


@pytest.mark.parametrize("engine", ["swift", pytest.param("s3", marks=pytest.mark.slow)])
def test_the_ceiling_is_that_of_reads_from_a_store_that_answers_at_once(engine, monkeypatch):
    """By the protocol of the treatment, whatever the environment says of other stores."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("ST_AUTH", "http://127.0.0.1:9/auth")
    given = {"name": "a", "engines": [engine], "concurrency": 2, "operation_count": 10, "job": JOB}
    (treatment,) = make_plan(parse_scenario(Source("s.yaml", json.dumps(given)), ()), 1).treatments
    setup = setup_of(treatment, 1)
    assert setup == Setup(f"stub store, {engine}", 1, 2, 1, look_ahead=True)
    assert measure_ceiling(setup, part_of(treatment).ceiling(treatment)).rate_per_s > 0


def test_a_run_on_objects_shows_the_kept_ceiling(workspace, tmp_path):
    """Beside its rate; every operation of the store in memory succeeds."""
    del workspace.environ[PROBE]
    workspace.environ["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    path = Path(tmp_path, "cache", "weighbridge", "ceilings.json")
    path.parent.mkdir(parents=True)
    setup = {"kind": "stub store, s3", "workers": 1, "concurrency": 2, "operations": 1, "look_ahead": True}
    one = {"setup": setup, "rate_per_s": 1e6, "measured": datetime.now(UTC).isoformat(), "machine": machine()}
    one["neighbours"] = {"others": 0.0, "idle_cpus": 0.0}
    path.write_text(json.dumps({"ceilings": [one]}))
    with stub_store() as variables:
        workspace.environ |= variables
        scenario = workspace.scenario(engines=["s3"], job=JOB, concurrency=2, operation_count=30, repeats=1)
        run = workspace.run(scenario)
    (treatment,) = run.document["treatments"]
    assert treatment["jobs"]["done"] == 30
    assert (treatment["harness"]["ceiling"], treatment["harness"]["ceiling_per_s"]) == ("stub store, s3", 1e6)
    assert "harness's own: stub store, s3, " in run.details
