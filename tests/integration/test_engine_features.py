"""What `list engines` says that an engine can do, what a scenario may ask of it, and what it does: the same."""

import contextlib
import json
import os

import pytest
from busybox_image import skip_or_fail
from command_line import run_in_process
from deadlines import LONG_END_S
from runtime_bench import OPTIONAL
from test_engine_cri import endpoint  # noqa: F401  a fixture
from workspace import Run, Workspace

from bench_common.engine_traits import engine_names
from bench_common.requirements import unsupported_features
from bench_common.treatment import CONTAINER_SETTINGS, OPERATIONS, ContainerSettings, Lifecycle, Operation, Treatment
from bench_master.commands.list.engines import as_table
from bench_worker.engines.cri import images as cri_images

ASKED = [kind for kind in OPERATIONS if kind not in {"sleep", "hold"}]
"""Operations that take an engine."""
LIVES = {
    "whole": ("create", "start", "exec", "pause", "unpause", "logs", "stats", "commit", "stop", "wait", "remove"),
    "short": ("run", "kill", "remove"),
}
"""All of them but `pull`, which takes a registry, in orders that work; what an engine cannot do is left out."""


def statuses():
    """Return what the command prints for programs: the statuses by name."""
    status, out, err = run_in_process(["list", "engines", "--format", "json"], ".", os.environ)
    assert status == 0, err
    return {status["name"]: status for status in json.loads(out)}


@pytest.fixture(scope="module")
def listed():
    return statuses()


@pytest.fixture(scope="module")
def cri(endpoint):  # noqa: F811
    """Where a CRI is, and what it can do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cri_images.VARIABLE, endpoint)
        return endpoint, statuses()["cri"]


@pytest.fixture(params=engine_names())
def status(request, listed, monkeypatch):
    if request.param != "cri":
        return listed[request.param]
    # There is hardly a machine with a CRI: it gets one.
    place, found = request.getfixturevalue("cri")
    monkeypatch.setenv(cri_images.VARIABLE, place)
    return found


def accepted(status, kind):
    """Say whether a scenario with this operation is not refused; where it is, that it is with a reason."""
    treatment = Treatment(0, {}, None, status["name"], Lifecycle((Operation(kind, kind),)), ContainerSettings())
    found = unsupported_features({**status, "usable": True}, treatment)
    assert all(status["details"][f"operation.{kind}"] in reason for reason in found)
    return not found


def test_what_is_printed_is_what_is_accepted(status):
    """Operation by operation, for people and for programs; of an engine that is not here, too."""
    printed = as_table([{**status, "usable": True}], width=10_000, full=True)
    [able] = [line for line in printed.splitlines() if line.startswith(f"{status['name']} can do: ")]
    message = able.partition(": ")[2].split(", ")
    assert sorted(message) == sorted(status["operations"])
    assert [kind for kind in ASKED if accepted(status, kind)] == [kind for kind in ASKED if kind in message]
    for kind in ASKED:
        assert (f"{status['name']} cannot do {kind}: " in printed) == (kind not in message)


def test_what_cannot_be_enforced_has_its_reason(status):
    """No setting is missing without one."""
    result = {key.removeprefix("setting.") for key in status["details"] if key.startswith("setting.")}
    assert result == set(CONTAINER_SETTINGS) - set(status["settings"]) - set(status["inapplicable"])


def lives_of(status):
    """Return the operations of each life that an engine can do."""
    return {name: [kind for kind in life if kind in status["operations"]] for name, life in LIVES.items()}


@pytest.fixture(scope="module")
def lived(listed, image, request, tmp_path_factory):
    """A run in which each engine that is usable here lives all its lives."""
    place, found = None, listed
    with contextlib.suppress(pytest.skip.Exception):
        place, status = request.getfixturevalue("cri")
        found = {**listed, "cri": status}
    # A shell ends at once when it is told to, as a process 1 has to be told how.
    settled = ["sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait"]
    container = {"image": image, "command": settled}
    networks = {"native": {}, "cri": {"network": "host"}}
    jobs = {
        f"{engine}-{name}": {
            "engines": [engine],
            "operations": [{"exec": ["true"]} if kind == "exec" else kind for kind in kinds],
            "container": {**container, **networks.get(engine, {"network": "none"})},
        }
        for engine, status in found.items()
        if status["usable"]
        for name, kinds in lives_of(status).items()
    }
    with Workspace(tmp_path_factory.mktemp("lived")) as workspace:
        # gVisor's sandbox runs as nobody in a folder below it, and a test's own is closed to others.
        workspace.environ.pop("TMPDIR", None)
        if place is not None:
            workspace.environ[cri_images.VARIABLE] = place
        program, stats = workspace.start_run(workspace.scenario(engines=sorted(found), jobs=jobs))
        ended = program.wait_for_exit(LONG_END_S)
        assert stats.exists(), ended.err
        return Run(ended.status, ended.out, ended.err, stats)


def test_what_is_accepted_is_done(status, lived):
    """Every operation that the engine says it can do succeeds, in a run."""
    engine = status["name"]
    if not status["usable"]:
        (pytest.skip if engine in OPTIONAL else skip_or_fail)(f"engine {engine}: {status['reason']}")
    jobs = [job for job in lived.jobs if job["treatment"]["engine"] == engine]
    assert {(job["outcome"], str(job["error"])) for job in jobs if job["outcome"] != "done"} == set()
    done = {job["treatment"]["job"]: set(job["operations"]) for job in jobs}
    able = {f"{engine}-{name}": set(kinds) for name, kinds in lives_of(status).items()}
    assert done.keys() == able.keys()
    assert all(done[name] >= kinds for name, kinds in able.items())
