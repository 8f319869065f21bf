"""The kernel works without a feature, whose entry points are hidden from every process as if it were not there."""

import os
import re
import subprocess
import sys

import pytest
from deadlines import END_S

HIDE = """
import os
import bench_common
from importlib.metadata import EntryPoints, entry_points

found = entry_points()
points = [one for group in found.groups for one in found.select(group=group)]
shown = EntryPoints(one for one in points if not one.value.startswith(os.environ["HIDDEN"]))
bench_common._all_entry_points = lambda: shown
"""
"""Python runs it at the start of each process, also of the worker that the master starts."""
EVERY = ""
"""Hidden are all features."""
KERNEL_FORMATS = ("text", "json", "jsonl", "csv", "html", "markdown")
SWIFT = """
name: some
jobs: {a: {operations: [run]}}
engines: [swift]
"""


@pytest.fixture
def without(tmp_path):
    """Return a function that runs `bench-master` without a feature."""
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(HIDE)
    (tmp_path / "swift.yaml").write_text(SWIFT)

    def run(feature, *words):
        environment = os.environ | {"HIDDEN": f"bench_features.{feature}", "PYTHONPATH": str(tmp_path / "hide")}
        command = [sys.executable, "-m", "bench_master", *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=END_S, check=False
        )

    return run


def complaints(ended):
    """Return what a command said beside its progress, which a slow machine shows."""
    return [line for line in ended.stderr.splitlines() if not re.match(r"(reading|writing) \S+: \d+ s", line)]


@pytest.mark.parametrize("feature", ["objects", "fleet", "archive", EVERY])
def test_a_run_its_reports_and_comparisons_need_no_feature(without, tmp_path, feature):
    """Master and worker run jobs of another kind to their end; reports are made, and two runs are compared."""
    for name in ("a.stats.gz", "b.stats.gz"):
        words = ("-q", "run-scenario", "-f", "noop", "--noop", "-o", "20", "--workers", "1", "-s", name)
        ended = without(feature, *words)
        assert ended.returncode == 0, ended.stderr
        assert "120 jobs done, 0 failed" in ended.stdout
    files = [word for name in KERNEL_FORMATS for word in ("--format", f"{name}=report.{name}")]
    reported = without(feature, "report-scenario", "-s", "a.stats.gz", *files)
    assert (reported.returncode, complaints(reported)) == (0, [])
    assert all((tmp_path / f"report.{name}").stat().st_size for name in KERNEL_FORMATS)
    compared = without(feature, "compare", "a.stats.gz", "b.stats.gz")
    assert (compared.returncode, complaints(compared)) == (0, [])
    assert "engine=native (" in compared.stdout
    assert "a.stats.gz, b.stats.gz: a no-op run measures the harness alone" in compared.stdout
    unknown = without(feature, "compare", "4f2a91", "b.stats.gz")
    assert unknown.returncode == 2
    assert "4f2a91: No such file or directory; a stats file expected" in unknown.stderr
    judged = without(feature, "report-scenario", "-s", "b.stats.gz", "--baseline", "a.stats.gz")
    assert (judged.returncode, complaints(judged)) == (0, [])
    assert "a.stats.gz, b.stats.gz: a no-op run measures the harness alone" in judged.stdout


@pytest.mark.parametrize(
    ("feature", "words", "message"),
    [
        ("objects", ("run-scenario", "-f", "swift.yaml", "--dry-run"), "swift.yaml:4:11: unknown engine 'swift'"),
        ("objects", ("run-scenario", "-f", "noop", "--dry-run", "-c", "3"), "unknown option -c"),
        ("objects", ("doctor", "--store", "swift"), "doctor: unknown option --store"),
        ("objects", ("cleanup-containers", "--store", "swift"), "cleanup-containers: unknown option --store"),
        ("fleet", ("run-scenario", "-f", "noop", "--dry-run", "-i", "hosts.yaml"), "unknown option -i"),
        (
            "fleet",
            ("run-scenario", "-f", "noop", "--dry-run", "--only", "blade"),
            "--only blade: expected LABEL=VALUE",
        ),
        ("fleet", ("doctor", "-i", "hosts.yaml"), "doctor: unknown option -i"),
        ("fleet", ("fleet", "start", "-i", "hosts.yaml"), "unknown sub-command 'fleet'"),
        ("archive", ("archive", "list"), "unknown sub-command 'archive'"),
        ("archive", ("run-scenario", "-f", "noop", "--dry-run", "--archive"), "unknown option --archive"),
        (
            "archive",
            ("run-scenario", "-f", "noop", "--dry-run", "--baseline", "trend"),
            "--baseline: 'trend': expected labels such as engine=docker, a stats file or folder, which must exist",
        ),
        (
            "archive",
            ("report-scenario", "-s", "none.stats.gz", "--baseline", "trend"),
            "--baseline: 'trend': expected labels such as engine=docker, a stats file or folder, which must exist",
        ),
    ],
)
def test_what_a_feature_brings_is_unknown_without_it(without, feature, words, message):
    """It is refused as bad input, by name."""
    ended = without(feature, *words)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
