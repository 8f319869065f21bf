"""Files of other tools, changed at random: a scenario, imported results or one error, never a fault of the reader."""

import copy
import gzip
import io
import json
import random
import re
from contextlib import redirect_stderr, redirect_stdout

import msgpack
import mutations
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from places import DATA, ROOT
from ssbench_results import DONE, FAILED, SCENARIO

from bench_master.cli import run_command_line

DEFINITIONS = [path.read_bytes() for path in sorted((DATA / "bucketbench").glob("*.yaml"))]
SSBENCH_SCENARIO = {
    "name": "Small test scenario",
    "sizes": [
        {"name": "tiny", "size_min": 4096, "size_max": 65536, "crud_profile": [5, 0, 0, 0]},
        {"name": "small", "size_min": 100000, "size_max": 200000},
    ],
    "initial_files": {"tiny": 100, "small": 10},
    "operation_count": 500,
    "crud_profile": [1, 6, 2, 1],
    "user_count": 4,
    "container_base": "ssbench",
    "container_count": 100,
    "container_concurrency": 10,
}
MONITOR = b"user,nice,system,idle,iowait,irq,softirq,steal\n0,0,0,0,0,0,0,0\n50,0,0,50,0,0,0,0\n9,0,0,9,0,0,0,0\n"
OUTPUTS = {
    "sysbench-cpu": (DATA / "sysbench" / "cpu-1t.txt").read_bytes(),
    "mbw": (DATA / "mbw" / "1.2.2-default-n3.txt").read_bytes(),
    "blogbench": (DATA / "blogbench" / "1.1-i5-s2.txt").read_bytes(),
}
FILES = [
    *sorted((DATA / "bucketbench").glob("*.yaml")),
    *sorted((DATA / "ssbench").glob("*.scenario")),
    *sorted((ROOT / "scenarios").rglob("*.yaml")),
]
ODD_LINES = (
    *(
        "---",
        "...",
        "%YAML 1.1",
        "? a",
        ": b",
        "- - - -",
        "&a [*a]",
        "<<: *a",
        "name: &a x",
        "image: *a",
        "\tname: x",
    ),
    *("benchmarks: &a [*a]", "commands: {run: {run: {}}}", "!!python/object:os.system {}", "detail: !!binary AAAA"),
    *("threads: 9223372036854775808", "threads: -1", "threads: 1e400", "iterations: .nan", "iterations: 0x7fffffff"),
    *("name: ''", 'name: "\\u0000"', "? [a, b]\n: c", "user_count: 1e9", "sizes: []", "operation_count: -0", "{}"),
    *('"sizes": [{"name": "a", "size_min": 5, "size_max": 1}],', '"crud_profile": [0, 0, 0, 0],', "}", "{", "]", "["),
    *("5", "x", "null", "[1, 2]", "-5", "1.5", "99999999999999999999", "'é'"),
)
"""Lines that stand where a tool's own would."""
FUZZED = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
DRAW = st.randoms(use_true_random=False)
ODD_VALUES = [repr(value) for value in mutations.ODD]
"""As they are before any test has used them."""


def answer(words):
    """Return the exit code of a command and what it says on stderr; check that it is no fault of its own."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with redirect_stdout(out), redirect_stderr(io.StringIO()) as err:
        status = run_command_line(words)
    told = err.getvalue()
    assert "internal error" not in told, told
    assert "Traceback" not in told, told
    return status, told


def changed_tree(tree, draw):
    """Return a tree with some odd items."""
    changed = copy.deepcopy(tree)
    for _ in range(draw.choice((1, 1, 2, 4))):
        if isinstance(changed, dict) and changed:
            mutations.change_item(changed, draw)
    return changed


def as_text(tree):
    """Return a tree as JSON, which YAML is, too; what JSON has no type for is a text."""
    return json.dumps(tree, default=repr, ensure_ascii=True, indent=1).encode()


@FUZZED
@given(draw=DRAW)
def test_a_changed_definition_is_converted_or_refused_with_its_place(tmp_path, draw):
    """Of bucketbench and ssbench: exit code 0 or 2, and each problem has file, line and column."""
    path = tmp_path / "old.yaml"
    tree = draw.choice([SSBENCH_SCENARIO, *map(yaml.safe_load, DEFINITIONS)])
    text = as_text(changed_tree(tree, draw)) if draw.random() < 0.7 else yaml.safe_dump(tree).encode()
    path.write_bytes(text if draw.random() < 0.6 else mutations.with_odd_bytes(text, draw))
    status, told = answer(["convert-scenario", str(path), *draw.choice(((), ("--stop-grace", "2s")))])
    assert status in (0, 2), told
    if status == 2:
        assert re.search(rf"{re.escape(str(path))}(:\d+:\d+|: )", told), told


def with_odd_lines(path, draw):
    """Return the text of a file in which some lines are other files', odd, twice, gone, or indented otherwise."""
    lines = path.read_text("utf-8").splitlines()
    for _ in range(draw.randrange(1, 7)):
        at = draw.randrange(len(lines) + 1)
        other = draw.choice(FILES).read_text("utf-8").splitlines()
        here = lines[at : at + 1]
        key = "".join(here).partition(":")[0]
        lines[at : at + 1] = draw.choice(
            (
                [draw.choice(other), *here],
                [" " * draw.randrange(9) + draw.choice(ODD_LINES), *here],
                [*other[: draw.randrange(len(other))], *here],
                [],
                here * 2,
                [" " * draw.randrange(9) + line.lstrip() for line in here],
                [f"{key}: {draw.choice(ODD_LINES)}"],
            )
        )
    return "\n".join(lines)


@FUZZED
@given(draw=DRAW)
def test_lines_of_real_files_are_converted_or_refused_with_the_file(tmp_path, draw):
    """Put together at random, with whatever YAML has: exit code 0 or 2, and the file's name where it is refused."""
    path = tmp_path / "old.yaml"
    path.write_text(with_odd_lines(draw.choice(FILES), draw), "utf-8")
    status, told = answer(["convert-scenario", str(path)])
    assert status in (0, 2), told
    assert status == 0 or str(path) in told, told


def stat_file(records):
    """Return the bytes of a stat file of ssbench."""
    return b"".join(mutations.packed(record) for record in records)


@FUZZED
@given(draw=DRAW)
def test_a_changed_stat_file_is_imported_or_refused(tmp_path, draw):
    """Of ssbench, plain or gzip, cut or with odd records: exit code 0, 2 or 3, with the file's name where refused."""
    path, stats = tmp_path / "run.stat", tmp_path / "out.stats.gz"
    stats.unlink(missing_ok=True)
    records = [SCENARIO, [DONE], [FAILED], [DONE | {"completed_at": 1002.5, "worker_id": 3}]]
    if draw.random() < 0.7:
        tree = {"head": records[0], "rest": records[1:]}
        changed = changed_tree(tree, draw)
        rest = changed.get("rest")
        records = [changed.get("head"), *(rest if isinstance(rest, list) else [rest])]
    content = stat_file(records)
    content = mutations.with_odd_bytes(content, draw) if draw.random() < 0.4 else content
    content = gzip.compress(content, mtime=0) if draw.random() < 0.3 else content
    path.write_bytes(mutations.with_odd_bytes(content, draw) if draw.random() < 0.2 else content)
    words = ["import-results", "ssbench", "--environment", "lab", "--engine", "swift", "-s", str(stats), str(path)]
    status, told = answer(words)
    assert status in (0, 2, 3), told
    assert status != 2 or str(path) in told, told
    if status == 0:
        assert answer(["report-scenario", "-s", str(stats), "-f", str(tmp_path / "report")])[0] in range(5)


@FUZZED
@given(draw=DRAW)
def test_a_changed_output_or_log_is_imported_or_refused(tmp_path, draw):
    """Outputs of tools, logs of monitors and columns of numbers: exit code 0, 2 or 3; what is in has a report."""
    path, stats = tmp_path / "log.txt", tmp_path / "out.stats.gz"
    stats.unlink(missing_ok=True)
    name = draw.choice(list(OUTPUTS))
    numbers = draw.random() < 0.2
    content = b"1 2\n3 4\n5 6\n" if numbers else draw.choice((OUTPUTS[name], OUTPUTS[name] * 2, MONITOR))
    content = mutations.with_odd_bytes(content, draw)
    path.write_bytes(gzip.compress(content, mtime=0) if draw.random() < 0.2 else content)
    words = ["import-results", name, "--environment", "lab", "--engine", "docker", "-s", str(stats), str(path)]
    words += ["--metric", "a,b"] if numbers else draw.choice(([], ["--interval", "1s"]))
    status, told = answer(words)
    assert status in (0, 2, 3), told
    assert status != 2 or str(path) in told or "--interval" in told or "--metric" in told, told
    if stats.exists():
        assert answer(["report-scenario", "-s", str(stats), "-f", str(tmp_path / "report")])[0] in range(5)


@pytest.mark.parametrize("content", [b"", b"\x80", b"\xdf\xff\xff\xff\xff", msgpack.packb([[]] * 9)])
def test_a_stat_file_that_is_none_is_refused(tmp_path, content):
    """Nothing, an empty map, a map without end, and lists."""
    path = tmp_path / "run.stat"
    path.write_bytes(content)
    words = ["import-results", "ssbench", "--environment", "lab", "--engine", "swift"]
    status, told = answer([*words, "-s", str(tmp_path / "out.stats.gz"), str(path)])
    assert (status, str(path) in told) == (2, True), told


def test_what_an_example_changes_is_not_there_in_the_next():
    """The same seed gives the same definition, however many were made before: a failure could not be shown again."""
    first = as_text(changed_tree(SSBENCH_SCENARIO, random.Random(1)))
    for seed in range(500):
        changed_tree(SSBENCH_SCENARIO, random.Random(seed))
    assert as_text(changed_tree(SSBENCH_SCENARIO, random.Random(1))) == first
    assert [repr(value) for value in mutations.ODD] == ODD_VALUES
