"""bucketbench's definitions, run for real: as they are, converted, and where everything in them fails."""

import shutil

import places
import pytest
from busybox_image import skip_or_fail
from workspace import containers_of, require_images

pytestmark = pytest.mark.docker

DATA = places.DATA / "bucketbench"
GENTLE = ("--set", "container.init=true", "--set", "container.network=none")
"""With an init, `sleep` heeds SIGTERM, and no stop takes its whole grace period; a network is no matter here."""


@pytest.fixture(scope="module")
def client():
    opened = require_images("weighbridge/base")
    yield opened
    opened.close()


def table(workspace, run):
    """Return bucketbench's table of a run, each line as its words."""
    report = workspace.master("report-scenario", "-s", run.stats, "--format", "bucketbench")
    assert report.status == run.status, report.err
    return [line.split() for line in report.out.splitlines()]


def drivers(run):
    """Return what the report says of each driver by its label; without the host ceiling."""
    entries = {one["treatment"]["job"]: one for one in run.document["treatments"]}
    entries.pop("(host-ceiling)", None)
    return entries


def test_a_definition_runs_as_it_is(workspace, client):
    """Two drivers, each with its own threads and iterations, one after the other; then their table."""
    run = workspace.run(DATA / "docker.yaml", *GENTLE)
    assert set(run.outcomes()) == {"done"}
    assert {label: one["jobs"]["done"] for label, one in drivers(run).items()} == {"Docker": 4, "Docker-2": 2}
    message = f"{DATA / 'docker.yaml'}:18: 'stop' is SIGTERM, and SIGKILL after 30s under Docker, as in bucketbench"
    assert f"note: {message}" in run.err
    assert any(note.startswith(message) for note in run.header.scenario.notes)
    assert any(remark.startswith(message) for remark in run.document["remarks"])
    lines = table(workspace, run)
    assert ["Iter/Thd", "1", "thrd", "2", "thrds"] in lines
    rates = {line[0]: line[1:] for line in lines if line and line[0] in ("Basic:Docker", "Basic:Docker-2")}
    assert [rates["Basic:Docker"][0], rates["Basic:Docker-2"][0]] == ["2", "2"]
    for name, entry in zip(rates, drivers(run).values(), strict=True):
        assert float(rates[name][1]) == pytest.approx(entry["jobs_per_s"], rel=1e-3)
    of_drivers = lines[next(place for place, line in enumerate(lines) if line[:1] == ["Basic:Docker:2"]) :]
    commands = [line for line in of_drivers if line and line[0] in ("run", "pause", "resume", "stop", "delete")]
    assert len(commands) == 10
    for _, low, high, mean, median, _, errors in commands:
        assert 0 < float(low) <= float(median) <= float(high)
        assert float(low) <= float(mean) <= float(high)
        assert errors == "0"
    assert containers_of(client, run.run_id) == []


def test_what_is_converted_runs_to_the_same_treatments(workspace, tmp_path, client):
    """The written scenario is one that every command takes; --legacy is a sweep, which scales in the report."""
    new = tmp_path / "new.yaml"
    converted = workspace.master("convert-scenario", DATA / "docker.yaml", "-o", new, "--legacy")
    assert converted.status == 0, converted.err
    assert "note: " in converted.err
    assert workspace.master("validate-scenario", "-f", new).status == 0
    shown = [
        workspace.master("run-scenario", "-f", path, *flags, "--dry-run", "--seed", "1", *GENTLE).out.partition(
            "Size"
        )[2]
        for path, *flags in ((new,), (DATA / "docker.yaml", "--legacy"))
    ]
    plans = [plan.partition("Notes")[0] for plan in shown]
    assert plans[0] == plans[1]
    assert "Docker-2" in plans[0]
    run = workspace.run(new, *GENTLE, "--set", "jobs.Docker.iterations=1")
    assert [one["jobs"]["done"] for one in run.document["treatments"][:3]] == [1, 2, 2]
    assert "x that of 1 in flight" in run.details
    assert containers_of(client, run.run_id) == []


def test_what_fails_is_no_throughput(workspace, client):
    """Every iteration fails: no job is counted as done, the report has the failure, and no container is left."""
    run = workspace.run(DATA / "failing.yaml", status=3)
    assert drivers(run)["Docker"]["jobs"]["failed"] == 4
    assert drivers(run)["Docker"]["jobs"]["done"] == 0
    lines = table(workspace, run)
    assert ["Failing:Docker", "2", "0"] in lines
    assert ["run", *["-"] * 5, "4"] in lines
    assert ["stop", *["-"] * 5, "0"] in lines
    assert containers_of(client, run.run_id) == []


def test_a_driver_that_cannot_run_here_is_refused_before_anything_runs(workspace, tmp_path, client):
    """Half a comparison is refused; the error says how to run the other half alone."""
    impossible = ("--set", "jobs.Docker-2.operations=[run, {stop: 500ms}, remove]")
    program, stats = workspace.start_run(DATA / "docker.yaml", *impossible)
    ended = program.wait_for_exit()
    assert ended.status == 2
    assert "to run only the other drivers of the definition: --drivers A,B" in ended.err
    assert not stats.exists()
    run = workspace.run(DATA / "docker.yaml", *GENTLE, "--drivers", "docker-2")
    assert {label: one["jobs"]["done"] for label, one in drivers(run).items()} == {"Docker-2": 2}
    assert f"note: {DATA / 'docker.yaml'}: not selected by --drivers: Docker\n" in run.err


def test_a_runtime_runs_beside_the_engine_above_it(workspace, client):
    """Each with its own threads and iterations, stopped in the same way, from the same image."""
    if shutil.which("runc") is None:
        skip_or_fail("runc is not installed; apt-get install runc")
    quiet = ("--stop-grace", "0", "--set", "container.network=none")
    run = workspace.run(DATA / "runtimes.yaml", *quiet)
    assert {label: one["jobs"]["done"] for label, one in drivers(run).items()} == {"Docker": 2, "Runc": 6}
    assert [one.engine for one in run.header.treatments[:2]] == ["docker", "runc"]
    lines = table(workspace, run)
    assert ["Runtimes:Runc:2", "Min", "Max", "Avg", "Median", "Stddev", "Errors"] in lines
    operations = [one for row in run.header.treatments[:2] for one in row.job["operations"]]
    assert [one["seconds"] for one in operations if one["kind"] == "stop"] == [0.0, 0.0]
    assert containers_of(client, run.run_id) == []
