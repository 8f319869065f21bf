"""Whole runs that compare engines: the same short lives on plain processes, OCI runtimes and containerd."""

from collections import Counter

import pytest
from busybox_image import skip_or_fail
from workspace import Workspace, require_images

from bench_worker.engines.base import EngineOptions
from bench_worker.engines.registry import engine_classes, open_engine

ENGINES = ("native", "runc", "crun", "containerd")


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))  # as in the runs
    require_images("weighbridge/base").close()
    classes = engine_classes()
    with Workspace(tmp_path) as made:
        for name in ENGINES:
            status = classes[name].probe()
            if not status.usable:
                skip_or_fail(f"engine {name}: {status.reason}; {status.advice}")
        yield made


def left_behind(run_id):
    """What every engine of the comparison has left of a run."""
    found = []
    for name in ENGINES:
        engine = open_engine(name, EngineOptions(run_id, "look", 1))
        found += engine.leftovers(run_id)
        engine.close()
    return found


def test_the_same_lives_under_every_engine(workspace):
    """Each engine does each operation of each job, four at a time, and nothing is left of any."""
    run = workspace.run(
        workspace.scenario(
            engines=list(ENGINES),
            container={"image": "weighbridge/base", "network": "none"},
            jobs={
                "short": {
                    "container": {"command": ["/bin/true"]},
                    "operations": ["run", "wait", "remove"],
                },
                "resident": {
                    "container": {"command": ["sleep", "600"]},
                    "operations": ["create", "start", {"exec": ["/bin/true"]}, "pause", "unpause", "kill", "remove"],
                },
            },
            concurrency=4,
            iterations=2,
        )
    )
    assert run.outcomes() == {"done": len(ENGINES) * 2 * 8}
    counts = Counter()
    for treatment in run.document["treatments"]:
        labels = treatment["treatment"]
        for name, operation in treatment["operations"].items():
            assert operation["n"] == 8
            assert operation["errors"] == 0
            counts[labels["engine"], labels["job"]] += name != "job"
    assert counts == {(engine, job): n for engine in ENGINES for job, n in (("short", 3), ("resident", 7))}
    assert left_behind(run.run_id) == []


def test_kept_containers_are_removed_on_request(workspace):
    """With `--keep` the containers of each engine stay; a clean-up of that run removes them and no others."""
    engines = ENGINES[1:]
    job = {"operations": ["run"], "container": {"image": "weighbridge/base", "command": ["sleep", "600"]}}
    with workspace.kept_run(workspace.scenario(engines=list(engines), job=job)) as run:
        assert {item.engine for item in left_behind(run.run_id)} == set(engines)
        dry = workspace.master("cleanup-containers", "--run", run.run_id, "--dry-run")
        assert dry.status == 0, dry.err
        assert len(left_behind(run.run_id)) == len(engines)
        swept = workspace.master("cleanup-containers", "--run", run.run_id)
        assert swept.status == 0, swept.err
        assert left_behind(run.run_id) == []


def test_what_an_engine_cannot_do_is_refused_before_the_run(workspace):
    """A network that no runtime has, an operation that none has: exit code 2, the engine and the reason, no job."""
    job = {"operations": ["run", "remove"], "container": {"image": "weighbridge/base", "network": "bridge"}}
    program, _ = workspace.start_run(workspace.scenario(engines=["runc"], job=job))
    ended = program.wait_for_exit()
    assert ended.status == 2
    assert "engine 'runc' has no network 'bridge'; it has: none, host" in ended.err
    job = {"operations": ["run", "commit", "remove"], "container": {"image": "weighbridge/base"}}
    program, _ = workspace.start_run(workspace.scenario(engines=["crun"], job=job))
    ended = program.wait_for_exit()
    assert ended.status == 2
    assert "engine 'crun' cannot do the operation 'commit'" in ended.err
