"""What a run does not need it does not load: it costs each run's memory and start."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import bench_master.commands.run_scenario
print(*[name for name in sys.argv[1:] if name in sys.modules])
"""
UNNEEDED = ("paramiko", "cryptography", "docker", "rich", "jsonschema")


@pytest.mark.parametrize("name", UNNEEDED)
def test_a_run_on_this_host_does_not_load(name):
    """Hosts that are reached over SSH need paramiko; the others are for workers, for the eye, and for schemas."""
    command = [sys.executable, "-c", PROGRAM, name]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.split() == []
