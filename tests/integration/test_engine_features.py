"""What `list-engines` says that an engine can do, what a scenario may ask of it, and what it does: the same."""

import json
import subprocess
import sys

import pytest
from busybox_image import skip_or_fail
from test_engine_cri import endpoint  # noqa: F401  a fixture
from test_engine_oci import OPTIONAL
from workspace import Workspace

from bench_common.engine_traits import engine_names
from bench_common.requirements import unsupported_features
from bench_common.treatment import CONTAINER_SETTINGS, OPERATIONS, ContainerSettings, Lifecycle, Operation, Treatment
from bench_master.commands.list_engines import as_table
from bench_worker.engines.cri import images as cri_images

ASKED = [kind for kind in OPERATIONS if kind not in {"sleep", "hold"}]
"""Operations that take an engine."""
LIVES = {
    "whole": ("create", "start", "exec", "pause", "unpause", "logs", "stats", "commit", "stop", "wait", "remove"),
    "saved": ("run", "checkpoint", "restore", "kill", "remove"),
}
"""All of them but `pull`, which takes a registry, in orders that work; what an engine cannot do is left out."""


def statuses():
    """Return what the command prints for programs: the statuses by name."""
    command = [sys.executable, "-m", "bench_master", "list-engines", "--format", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return {status["name"]: status for status in json.loads(ended.stdout)}


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
    printed = as_table([{**status, "usable": True}], width=10_000)
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


def test_what_is_accepted_is_done(status, image, tmp_path):
    """Every operation that the engine says it can do succeeds, in a run."""
    if not status["usable"]:
        (pytest.skip if status["name"] in OPTIONAL else skip_or_fail)(f"engine {status['name']}: {status['reason']}")
    able = {name: [kind for kind in life if kind in status["operations"]] for name, life in LIVES.items()}
    if "checkpoint" not in able["saved"]:
        # Nothing is left of it that is not in the whole one.
        del able["saved"]
    # A shell ends at once when it is told to, as a process 1 has to be told how.
    settled = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
    container = {"image": image, "command": settled}
    if status["name"] != "native":
        container["network"] = "host" if status["name"] == "cri" else "none"
    jobs = {
        name: {
            "operations": [{"exec": ["true"]} if kind == "exec" else kind for kind in kinds],
            "container": container,
        }
        for name, kinds in able.items()
    }
    with Workspace(tmp_path) as workspace:
        # gVisor's sandbox runs as nobody in a folder below it, and a test's own is closed to others.
        workspace.environ.pop("TMPDIR", None)
        run = workspace.run(workspace.scenario(engines=[status["name"]], jobs=jobs))
        assert run.outcomes() == {"done": len(jobs)}
        done = {entry["treatment"]["job"]: set(entry["operations"]) for entry in run.document["treatments"]}
        assert done.keys() == able.keys()
        assert all(done[name] >= set(kinds) for name, kinds in able.items())
