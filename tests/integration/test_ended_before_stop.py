"""A command that ends by itself just before it is stopped: each engine goes on as if it had been stopped in time.

The kernel tells the end of a process to the worker and to the engine, in any order. So a `stop` may find that the
container runs, has ended, or has ended as far as one of the two knows; and a `remove` follows at once.
"""

import pytest
from deadlines import LONG_END_S
from runtime_bench import require
from test_engine_cri import endpoint  # noqa: F401  a fixture
from workspace import Workspace

from bench_common.engine_traits import engine_names
from bench_worker.engines.cri import images as cri_images
from bench_worker.engines.registry import engine_classes

IN_FLIGHT, JOBS = 4, 24
MANY_IN_FLIGHT, MANY_JOBS = (1, 4, 16), 500


@pytest.fixture(params=engine_names())
def place(request, image, tmp_path, monkeypatch):
    """A workspace, the name of an engine that can be used, and the settings of its containers."""
    engine = request.param
    container = {"image": image, "command": ["date"], "network": "host" if engine == "cri" else "none"}
    if engine == "cri":
        # There is hardly a machine with a CRI: it gets one.
        monkeypatch.setenv(cri_images.VARIABLE, request.getfixturevalue("endpoint"))
    elif engine == "native":
        container = {"command": ["date"]}
    require(engine_classes({engine})[engine])
    with Workspace(tmp_path) as workspace:
        # gVisor's sandbox runs as nobody in a folder below it, and a test's own is closed to others.
        workspace.environ.pop("TMPDIR", None)
        yield workspace, engine, container


def assert_all_done(place, in_flight, jobs):
    """All jobs of a run are done, so many in flight, and nothing is left of them."""
    workspace, engine, container = place
    job = {"operations": ["run", "stop", "remove"], "container": container, "operation_count": jobs}
    scenario = workspace.scenario(engines=[engine], job=job, concurrency=in_flight)
    run = workspace.run(scenario, seconds=LONG_END_S)
    errors = {(row["outcome"], row.get("error"), row.get("message")) for row in run.jobs if row["outcome"] != "done"}
    assert (errors, run.outcomes()) == (set(), {"done": jobs})
    listed = workspace.master("cleanup-containers", "--dry-run", "--run", run.run_id)
    assert run.run_id not in listed.out


def test_none_fails(place):
    """Two dozen, four in flight."""
    assert_all_done(place, IN_FLIGHT, JOBS)


@pytest.mark.slow
@pytest.mark.parametrize("in_flight", MANY_IN_FLIGHT)
def test_none_of_many_fails(place, in_flight):
    """Hundreds, one after the other or many in flight."""
    assert_all_done(place, in_flight, MANY_JOBS)
