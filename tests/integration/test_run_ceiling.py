"""The ceiling of the harness in real runs: measured when it is within reach, kept, and a reason to refuse."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from attention import undisturbed

from bench_master.run.ceilings import PROBE, machine

JOB = {"operations": ["run", "wait", "remove"], "container": {"command": ["sleep", "4"]}}
SETUP = {"kind": "no-op", "workers": 1, "concurrency": 4, "operations": 3, "look_ahead": True}


def keep(workspace, rate, *, age=timedelta(), **changes):
    """Keep a ceiling as if an earlier run had measured it; return the file."""
    path = Path(workspace.environ["XDG_CACHE_HOME"], "weighbridge", "ceilings.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    one = {"setup": SETUP, "rate_per_s": rate, "measured": (datetime.now(UTC) - age).isoformat()}
    one["neighbours"] = {"others": 0.0, "idle_cpus": 0.0}
    path.write_text(json.dumps({"ceilings": [one | {"machine": machine() | changes}]}))
    return path


@pytest.fixture
def own_cache(workspace, tmp_path):
    """A workspace whose runs look for their ceiling, with a cache of its own."""
    del workspace.environ[PROBE]
    workspace.environ["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    return workspace


def pair(workspace, **keys):
    """Write a scenario of two treatments of native jobs, four in flight."""
    keys = {"repeats": 1, "iterations": 1, "concurrency": 4, "jobs": {"a": JOB, "b": JOB}} | keys
    return workspace.scenario(**keys)


def ceilings_of(run):
    return [event for event in run.blocks("event") if event["kind"] == "harness-ceiling"]


def test_a_run_near_the_kept_ceiling_is_refused_and_its_gates_cannot_be_judged(own_cache):
    """Four jobs in four seconds are all of a ceiling of one a second, and cannot be more."""
    path = keep(own_cache, 1.0)
    before = path.read_bytes()

    def near():
        run = own_cache.run(pair(own_cache), "--baseline", "job=a", "--fail-on", "slower by 5%", status=4)
        (comparison,) = run.document["verdicts"]["comparisons"]
        assert comparison["verdict"] == "refused"
        assert [reason["code"] for reason in comparison["reasons"]] == ["limited-by-harness"]
        return run

    run = undisturbed(near)
    assert "limited by the harness" in " ".join(run.out.split())
    for treatment in run.document["treatments"]:
        assert treatment["harness"]["ceiling_per_s"] == 1.0
        assert treatment["harness"]["share"] == pytest.approx(treatment["jobs_per_s"])
        assert 0 <= treatment["harness"]["cpu_share"] <= 1
    assert [event["treatment"] for event in ceilings_of(run)] == [0, 1]
    # What is kept and young is not measured again.
    assert path.read_bytes() == before


@pytest.mark.parametrize("changes", [{"kernel": "another"}, {"age": timedelta(days=8)}])
def test_an_old_ceiling_and_one_of_another_machine_do_not_count(own_cache, changes):
    """Out of reach, it is not measured again either: the run has none."""
    keep(own_cache, 1.0, **changes)
    run = own_cache.run(pair(own_cache, jobs={"a": JOB}))
    assert ceilings_of(run) == []
    assert run.document["treatments"][0]["harness"]["ceiling_per_s"] is None


def test_a_rate_within_reach_has_its_ceiling_measured_and_kept_for_the_next_run(own_cache):
    """Jobs that sleep for a nanosecond are as fast as the harness itself, whatever the machine."""
    scenario = own_cache.scenario(
        repeats=1, iterations=500, concurrency=8, job={"operations": [{"sleep": "1ns"}]}, name="near"
    )
    old = keep(own_cache, 1.0, kernel="another")
    first = own_cache.run(scenario)
    (event,) = ceilings_of(first)
    assert event["rate_per_s"] > 0
    told = "looking what the harness itself can do here (no-op, 1 worker, 8 in flight, 1 operation a job)"
    assert told in first.err
    (one,) = json.loads(old.read_text())["ceilings"]
    assert (one["rate_per_s"], one["machine"]) == (event["rate_per_s"], machine())
    second = own_cache.run(scenario)
    (again,) = ceilings_of(second)
    if event["quiet"] and again["measured"] == event["measured"]:
        assert told not in second.err
    # Beside busy neighbours the higher one holds.
    assert again["quiet"] or again["rate_per_s"] >= event["rate_per_s"]
    assert again["rate_per_s"] == json.loads(old.read_text())["ceilings"][0]["rate_per_s"]


def test_a_noop_run_measures_none_and_shows_what_is_kept(own_cache):
    """It is one itself; its verdict is refused for that alone."""
    keep(own_cache, 1e9)
    run = own_cache.run(pair(own_cache), "--noop", "--baseline", "job=a")
    (comparison,) = run.document["verdicts"]["comparisons"]
    assert [reason["code"] for reason in comparison["reasons"]] == ["noop"]
    assert run.document["treatments"][0]["harness"]["ceiling_per_s"] == 1e9
    assert run.document["treatments"][0]["harness"]["cpu_share"] is None


def test_doctor_measures_the_usual_ceilings_now(own_cache, tmp_path):
    """And keeps them, so that the next run has them."""
    done = own_cache.master("doctor", "--ceiling", "--format", "json")
    found = [one for one in json.loads(done.out) if one["check"] == "ceiling"]
    kept = json.loads((tmp_path / "cache" / "weighbridge" / "ceilings.json").read_text())["ceilings"]
    assert sorted(float(one["value"]) for one in found) == sorted(one["rate_per_s"] for one in kept)
    assert {one["setup"]["concurrency"] for one in kept} == {1, 24}
