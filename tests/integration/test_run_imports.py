"""What a run does not need it does not load: it costs each run's memory, CPU time and start."""

import subprocess
import sys

import pytest
from deadlines import END_S

MASTER = "import bench_master.commands.run_scenario"
FOR_OTHER_RUNS = {
    *("paramiko", "cryptography", "docker", "requests", "regex", "rich", "jsonschema", "sqlalchemy"),
    *("bench_master.fleet.fleet", "bench_master.fleet.inventory", "bench_master.fleet.launchers.base"),
    *("bench_master.fleet.wheels", "bench_master.commands.fleet_run", "bench_master.run.discovery"),
    *("bench_master.run.resume", "bench_master.archive", "bench_master.web.live_page"),
}
"""What only runs with an inventory, continued ones, archived ones or watched ones need."""
WORKER = """
from bench_worker.cli import build_parser
build_parser()
import bench_worker.agent, bench_worker.load_process
from bench_worker.engines.registry import engine_classes
engine_classes({"ENGINE"})
"""
FOR_OTHER_JOBS = {
    *("paramiko", "cryptography", "regex", "yaml", "google.protobuf", "numpy"),
    *(
        "bench_worker.stores.population",
        "bench_worker.stores.performer",
        "bench_worker.stores.runner",
        "bench_worker.stores.host",
        "bench_worker.stores.registry",
        "bench_common.objects.job",
        "bench_common.objects.rules",
        "bench_common.objects.access",
        "bench_master",
        "workloads.sysbench",
        "workloads.mbw_output",
    ),
}
"""What only jobs on object stores, or of workloads, or of other engines need."""
ENGINES = {
    "native": {"docker", "requests", "bench_worker.engines.docker.engine", "bench_worker.engines.oci.engine"},
    "crun": {"docker", "requests", "bench_worker.engines.docker.engine", "bench_worker.engines.native.engine"},
    "docker": {"bench_worker.engines.oci.engine", "bench_worker.engines.native.engine"},
}
"""What the worker of a run under one engine need not load besides."""


def loaded_by(program, names):
    """Return which of these modules a program has loaded at its end."""
    watched = f"import sys\n{program}\nprint(*[name for name in sys.argv[1:] if name in sys.modules])"
    command = [sys.executable, "-c", watched, *sorted(names)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=END_S).stdout.split())


def test_a_run_on_this_host_loads_nothing_of_a_fleet():
    """Hosts that are reached over SSH, archives and pages have modules that the master of such a run leaves alone."""
    assert loaded_by(MASTER, FOR_OTHER_RUNS) == set()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_worker_loads_only_its_engine(engine):
    """Neither other engines with their libraries, nor object stores, nor the workloads, until a job needs one."""
    begin = "import bench_worker.__main__\n"
    assert loaded_by(begin + WORKER.replace("ENGINE", engine), FOR_OTHER_JOBS | ENGINES[engine]) == set()
