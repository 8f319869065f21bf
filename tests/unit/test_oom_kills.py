"""Whether the OOM killer ended a command of exec, by the counter of its cgroup."""

from pathlib import Path

import pytest

from bench_worker.engines.base import OperationResult
from bench_worker.engines.oci.cgroups import OomKillCounter, memory_directory

HYBRID = "9:cpuset:/x/abc\n4:memory:/pods/abc\n1:name=systemd:/s/abc\n0::/u/abc\n"


class Host:
    """A host where the process 7 is in these groups."""

    def __init__(self, groups):
        self._groups = groups

    def text(self, path):
        return self._groups if path == "/proc/7/cgroup" else None


@pytest.mark.parametrize(
    ("groups", "identity", "directory"),
    [
        (HYBRID, "abc", "/sys/fs/cgroup/memory/pods/abc"),
        ("5:cpu,memory:/abc\n", "abc", "/sys/fs/cgroup/memory/abc"),
        (
            "0::/machine.slice/libpod-abc.scope/container\n",
            "abc",
            "/sys/fs/cgroup/machine.slice/libpod-abc.scope/container",
        ),
        (HYBRID, "def", None),
        (HYBRID, "", None),
        ("3:cpu:/abc\n", "abc", None),
        (None, "abc", None),
    ],
)
def test_a_containers_memory_group_is_that_of_its_first_process(groups, identity, directory):
    """Version 1 where it has the controller, else version 2; a process of the same number elsewhere is none of it."""
    assert memory_directory(7, identity, Host(groups)) == (directory and Path(directory))


@pytest.mark.parametrize(
    ("before", "after", "code", "told"), [(0, 1, 137, True), (1, 2, 3, True), (1, 1, 137, False), (0, 1, 0, False)]
)
def test_only_what_was_killed_meanwhile_explains_a_failure(tmp_path, before, after, code, told):
    """A kill of before does not, and a command that does not mind has not failed."""
    events = tmp_path / "memory.events"
    events.write_text(f"oom {before}\noom_kill {before}\n")
    kills = OomKillCounter(tmp_path)
    events.write_text(f"oom {after}\noom_kill {after}\n")
    assert kills.explain(OperationResult(1, 2, exit_code=code)) is told
    assert OomKillCounter(None).explain(OperationResult(1, 2, exit_code=code)) is False
