"""What a run does not need it does not load: it costs each run's memory, CPU time and start."""

import subprocess
import sys

import pytest
from deadlines import END_S

MASTER = "import bench_master.commands.run_scenario"
FOR_OTHER_RUNS = {
    *("paramiko", "cryptography", "docker", "requests", "regex", "rich", "jsonschema", "sqlite3"),
    *("bench_features.fleet.fleet", "bench_features.fleet.inventory", "bench_features.fleet.launchers.base"),
    *("bench_features.fleet.wheels", "bench_features.fleet.fleet_run", "bench_master.run.discovery"),
    *("bench_master.run.resume", "bench_features.archive", "bench_features.live.live_page"),
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
        "bench_features.objects.worker.population",
        "bench_features.objects.worker.performer",
        "bench_features.objects.worker.runner",
        "bench_features.objects.worker.host",
        "bench_features.objects.worker.registry",
        "bench_features.objects.common.job",
        "bench_features.objects.common.rules",
        "bench_features.objects.common.access",
        "bench_master",
        "bench_workloads.sysbench",
        "bench_workloads.mbw_output",
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


def test_a_first_weigh_loads_only_what_it_uses(tmp_path):
    """A whole run with its report, under the engine that needs no library, loads none of the others' and no extra."""
    program = (
        "import json, sys, bench_master.__main__ as program\n"
        "try:\n    program.main()\n"
        "except SystemExit as end:\n    print(end.code, *sorted(sys.modules), file=open('loaded', 'w'))"
    )
    words = ["weigh", "native", "--repeats", "1", "--warmup", "0", "--", "true"]
    subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, timeout=END_S, check=True
    )
    code, *loaded = (tmp_path / "loaded").read_text().split()
    assert code in "034"
    assert UNUSED_BY_WEIGH & set(loaded) == set()


UNUSED_BY_WEIGH = {
    *("docker", "requests", "paramiko", "google.protobuf", "hpack", "regex", "rich", "jinja2", "markupsafe"),
    *("sqlite3", "pyinstrument", "shtab", "pandas"),
}
"""Libraries of other engines, of fleets and pages, and all that are extras."""
