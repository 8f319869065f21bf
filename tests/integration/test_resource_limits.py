"""Limits of the system that are too small: both programs refuse at once, in one line, and leave nothing behind."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from busybox_image import skip_or_fail
from deadlines import END_S

MIB = 1 << 20
STRANGER = 54_321
"""A user that nobody else is: the limit of processes counts those of one user, and root has none."""
SCENARIO = """
name: small
engines: [native]
operation_count: 4
job: {operations: [run, wait, remove], container: {command: [/bin/true]}}
"""
MASTER = ("bench_master", "run-scenario", "-f", "small.yaml", "--workers", "1", "-q", "-R")
WORKER = ("bench_worker", "--master-timeout", "1")


def as_stranger(words):
    """Return the words that run a program as a user with one right: to read our virtual environment."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        skip_or_fail("becoming another user takes root and setpriv (util-linux)")
    rights = "-all,+dac_read_search"
    caps = [f"--{which}={rights}" for which in ("inh-caps", "ambient-caps", "bounding-set")]
    return ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", *caps, *words]


@pytest.mark.parametrize(
    ("program", "kind", "limit", "told"),
    [
        (MASTER, "NOFILE", 8, "may have 8 open files and needs"),
        (MASTER, "NOFILE", 100, "1 workers take 272 open files, and this process may have 100"),
        (MASTER, "AS", 250 * MIB, "MiB of address space and cannot have them"),
        (MASTER, "NPROC", 12, "can start 11 threads and needs"),
        (WORKER, "NOFILE", 8, "may have 8 open files and needs"),
        (WORKER, "AS", 220 * MIB, "MiB of address space and cannot have them"),
        (WORKER, "NPROC", 8, "can start 7 threads and needs"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else str(value),
)
def test_a_limit_that_is_too_small_is_refused(tmp_path, program, kind, limit, told):
    """Exit code 3 and one line that names the limit: no traceback, abort or hang, no process and no file."""
    words = [sys.executable, "-m", *program]
    if kind == "NPROC":
        words = as_stranger(words)
        os.chown(tmp_path, STRANGER, STRANGER)
        for parent in tmp_path.parents[:2]:
            parent.chmod(0o711)
    (tmp_path / "small.yaml").write_text(SCENARIO)
    (tmp_path / "small.yaml").chmod(0o644)
    number = getattr(resource, f"RLIMIT_{kind}")
    ended = subprocess.run(
        words,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        preexec_fn=lambda: resource.setrlimit(number, (limit, limit)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )
    name = program[0].replace("_", "-")
    assert (ended.returncode, ended.stdout) == (3, ""), ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"{name}: ")
    assert told in line
    assert "ulimit -" in line
    folders = [tmp_path]
    if kind == "NPROC":
        assert [one for one in psutil.process_iter(["uids"]) if one.info["uids"].real == STRANGER] == []
        folders += Path("/tmp").glob(f"weighbridge-{STRANGER}*")
    left = [path.name for folder in folders for path in folder.rglob("*") if not path.is_dir()]
    for folder in folders[1:]:
        shutil.rmtree(folder)
    assert left == ["small.yaml"]
