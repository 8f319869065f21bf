"""What is read from CRIU's words, and what a status says where it cannot be used."""

import pytest

from bench_common.requirements import unsupported_features
from bench_common.treatment import ContainerSettings, Lifecycle, Operation, Treatment
from bench_worker.engines.base import Container, EngineOptions, OperationFailed
from bench_worker.engines.docker import probe as docker_probe
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci import runtime as oci_runtime
from bench_worker.engines.oci.bundle import Bundle, checkpoint_options, with_criu_reason
from bench_worker.engines.oci.runtimes import CrunEngine

CHECK = "Error (criu/vdso.c:381): vdso: Unexpected rt vDSO area bounds\nError (criu/crtools.c:260): Could not\n"
DUMP = (
    "(00.049823) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n"
    "(00.128858)      1: Error (criu/files-reg.c:2175): File fd/1 has bad size 0 (expect 14)\n"
    "(00.140323) Error (criu/cr-restore.c:2331): Restoring FAILED.\n"
)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (CHECK, "vdso: Unexpected rt vDSO area bounds"),
        (DUMP, "File fd/1 has bad size 0 (expect 14)"),
        ("Segmentation fault\nmore", "Segmentation fault"),
        ("", "it gives no reason"),
    ],
)
def test_the_first_error_is_the_reason(said, error):
    """Without its place in the source; that CRIU may not raise its own limits is no reason."""
    assert oci_runtime.first_error(said) == error


def test_a_missing_program_is_said_with_what_to_do(monkeypatch):
    """Nothing is started for that."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt-get install criu" in oci_runtime.unavailable_reason("runc")


def test_an_engine_that_cannot_save_says_why():
    """The reason of the host goes before the list of what the engine can do."""
    job = Lifecycle((Operation("checkpoint", "checkpoint"), Operation("restore", "restore")))
    treatment = Treatment(0, {}, None, "runc", job, ContainerSettings())
    status = {"name": "runc", "usable": True, "operations": ["run"], "details": {"operation.checkpoint": "no CRIU"}}
    saving, restoring = unsupported_features(status, treatment)
    assert saving == "engine 'runc' cannot do the operation 'checkpoint': no CRIU"
    assert "it can do hold, run, sleep" in restoring


def test_a_failure_tells_what_the_log_tells(tmp_path):
    """The runtime itself says no more than that it failed, and its log goes with the container."""
    bundle = Bundle(tmp_path, "/c")
    failure = OperationFailed("engine", "criu failed", start_ns=1, end_ns=2)
    assert with_criu_reason(bundle, failure) is failure
    (tmp_path / "restore.log").write_text(DUMP)
    told = with_criu_reason(bundle, failure)
    assert (str(told), told.kind) == ("criu failed: File fd/1 has bad size 0 (expect 14)", "engine")
    assert (told.start_ns, told.end_ns) == (1, 2)


def test_docker_saves_with_experimental_features_only(monkeypatch):
    """Which are looked for first; CRIU is asked where it would do its work, and nowhere else."""
    monkeypatch.setattr(oci_runtime, "unavailable_reason", lambda runtime: f"{runtime}: no")
    assert "experimental" in docker_probe.unavailable_reason({}, here=True)
    able = {"ExperimentalBuild": True, "DefaultRuntime": "runc"}
    assert docker_probe.unavailable_reason(able, here=True) == "runc: no"
    assert docker_probe.unavailable_reason(able, here=False) == ""


def test_each_saving_has_a_folder_of_its_own(tmp_path):
    """And restoring takes the last one."""
    bundle = Bundle(tmp_path, "/c")
    first, second = (checkpoint_options(bundle, save=True) for _ in range(2))
    assert first != second
    assert checkpoint_options(bundle) == second


def test_crun_gets_the_path_of_the_directory_that_covers_others(tmp_path, monkeypatch):
    """Once, however often a container is restored, and not where it has none."""
    monkeypatch.setattr(oci_images, "STATE_ROOT", tmp_path)
    configuration = tmp_path / "criu.conf"
    configuration.write_text("inherit-fd fd[1]:x\n")
    life = Container("life", 1, ContainerSettings())
    life.handle = Bundle(tmp_path, "/c")
    engine = CrunEngine(EngineOptions("r", "w", 1))
    engine.prepare_restore(life, None)
    assert configuration.read_text() == "inherit-fd fd[1]:x\n"
    cover = tmp_path / "crun" / ".empty-directory"
    cover.mkdir(parents=True)
    for _ in range(2):
        engine.prepare_restore(life, None)
    told = f"external mnt[/run/crun/.empty-directory]:{cover}\n"
    assert configuration.read_text() == f"inherit-fd fd[1]:x\n{told}"
