"""A program that plain processes need and this host lacks is found before the run."""

import os

import pytest
from msgspec.structs import replace

from bench_common.errors import InfrastructureError, UsageError
from bench_common.requirements import Requirement
from bench_common.treatment import (
    CONTAINER_PATH,
    ContainerSettings,
    Guest,
    Lifecycle,
    Operation,
    OwnCommand,
    Treatment,
)
from bench_master.run.host_programs import check_programs
from bench_master.run.preflight import measured_programs


def treatment(*command, engine="native", job=None, **changes):
    container = ContainerSettings(command=command or None, env=changes.pop("env", {}))
    known = {"environment": None, "engine": engine, "job": job or Lifecycle(()), "container": container}
    return Treatment(0, {}, **(known | changes))


def nothing(_program, _path):
    return None


def test_a_command_that_is_not_there_is_an_error_of_the_user(monkeypatch, tmp_path):
    """It names the program, and the one that was meant; a path says what is wrong with it."""
    (tmp_path / "sorted-words").write_text("")
    (tmp_path / "sorted-words").chmod(0o755)
    plain = tmp_path / "plain"
    plain.write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    check_programs([treatment("sorted-words")], "local")
    for command, words in (
        ("sorted-word", "no program 'sorted-word' in this host's PATH.*did you mean 'sorted-words'"),
        (f"{tmp_path}/none", f"there is no program {tmp_path}/none on this host"),
        (str(plain), f"{plain} is not executable: chmod"),
        (str(tmp_path), f"{tmp_path} is a directory"),
    ):
        with pytest.raises(UsageError, match=words):
            check_programs([treatment(command)], "local")


def test_what_the_scenario_has_a_directory_for_is_looked_for_there(tmp_path):
    """A relative path; and the programs of steps beside a command are looked for on the PATH."""
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "tool").write_text("")
    settings = ContainerSettings(command=("build/tol",), directory=str(tmp_path))
    with pytest.raises(UsageError, match=f"no program {tmp_path}/build/tol on this host"):
        check_programs([treatment(container=settings)], "local")
    (tmp_path / "build" / "tol").symlink_to("/bin/true")
    check_programs([treatment(container=settings)], "local")
    steps = Guest("command", {}, OwnCommand(command=("true",), prepare=("no-such-step",)))
    with pytest.raises(UsageError, match="no program 'no-such-step' in this host's PATH"):
        check_programs([treatment(job=steps)], "local")


def test_a_workloads_program_is_the_hosts_fault(monkeypatch):
    """As an image that is missing is; the message names the package."""
    job = Guest("sysbench-cpu", {})
    with pytest.raises(InfrastructureError, match="program sysbench is not installed on this host: apt-get install"):
        check_programs([treatment(job=job)], "local", nothing)
    with pytest.raises(InfrastructureError, match="blogbench is not installed on this host: Debian does not"):
        check_programs([treatment(job=Guest("blogbench", {}))], "local", nothing)


def test_what_a_run_does_not_need_of_this_host_is_not_looked_for():
    """Images have their own programs, other hosts theirs, jobs may make some, and optional treatments may fail."""
    made = Guest("command", {}, OwnCommand(command=("/tmp/made", "x"), prepare=("./make", "x")))
    given = Guest("command", {}, OwnCommand(command=("{answers.program}",)))
    needless = [
        treatment("none", engine="docker"),
        treatment("none", environment="metal"),
        treatment("none", optional=True),
        treatment("./own"),
        treatment(job=made),
        treatment(job=given),
    ]
    check_programs(needless, "local", nothing)


def test_the_jobs_own_path_counts(tmp_path):
    """A PATH among the environment's variables replaces ours, and a container's where there are containers."""
    asked = []

    def find(program, path):
        asked.append((program, path))
        return "found"

    beside = treatment("three", plain_environment="container")
    check_programs([treatment("one", env={"PATH": str(tmp_path)}), treatment("two"), beside], "local", find)
    assert asked == [("one", str(tmp_path)), ("two", os.environ["PATH"]), ("three", CONTAINER_PATH)]


def test_a_program_that_only_the_worker_would_find_is_told_with_its_place(monkeypatch, tmp_path):
    """Beside containers plain processes have a container's PATH, so each of their jobs would fail."""
    place = tmp_path / "of-a-venv"
    place.write_text("")
    place.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    check_programs([treatment("of-a-venv")], "local")
    with pytest.raises(UsageError, match=f"its PATH beside containers; write {place}, or say environment: inherit"):
        check_programs([treatment("of-a-venv", plain_environment="container")], "local")


def test_workers_are_asked_for_the_files_of_measured_programs():
    """Those of the user's commands and of a workload, where plain processes look them up; each once."""
    own = Guest("command", {}, OwnCommand(command=("tool", "x"), prepare=("make",)))
    executed = Lifecycle((Operation("create", "create"), Operation("exec", "exec", argv=("probe", "1"))))
    relative = treatment("./old")
    here = replace(relative, container=replace(relative.container, directory="/src"))
    plan = [
        treatment("sleep", "1"),
        treatment("sleep", "2"),
        treatment("sleep", plain_environment="container"),
        treatment("sleep", env={"PATH": "/opt/bin"}),
        treatment(job=own),
        treatment(job=executed),
        treatment(job=Guest("sysbench-cpu", {})),
        here,
    ]
    assert measured_programs(plan, "local") == [
        Requirement("native", command="sleep"),
        Requirement("native", command="sleep", search_path=CONTAINER_PATH),
        Requirement("native", command="sleep", search_path="/opt/bin"),
        Requirement("native", command="tool"),
        Requirement("native", command="probe"),
        Requirement("native", command="sysbench"),
        Requirement("native", command="./old", directory="/src"),
    ]


def test_what_is_no_file_of_a_host_before_the_run_is_not_asked_for():
    """A program of an image or of another host, one that jobs make or that is filled in, or of a job's directory."""
    made = Guest("command", {}, OwnCommand(command=("/tmp/made", "x"), prepare=("./make", "x")))
    given = Guest("command", {}, OwnCommand(command=("{answers.program}",)))
    plan = [
        treatment("tool", engine="docker"),
        treatment("tool", environment="metal"),
        treatment("./own"),
        treatment(job=made),
        treatment(job=given),
    ]
    assert measured_programs(plan, "local") == []
