"""Stats files changed as no writer would, through every reader: a report or an error, never a fault of the reader."""

import io
import random
import warnings
from contextlib import redirect_stderr, redirect_stdout

import mutations
import places
import pytest
from archive_runs import a_run
from builders import chained, lifecycle_run, text_formats
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from other_runs import imported_run, object_run

import weighbridge
from bench_common.errors import WeighbridgeError
from bench_common.stats.reader import StatsFile
from bench_master.cli import run_command_line
from bench_master.run.resume import ResumableRun

FORMATS = text_formats()
TABLES = ("trials", "jobs", "operations", "transfers", "metrics", "samples", "verdicts")
FORMATS_AT_ONCE = 3


def read_tables(path, folder, draw):
    """Read a table as a notebook does, and show the run."""
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            run = weighbridge.load(path, "numpy")
            getattr(run, draw.choice(TABLES))()
            run._repr_html_()
    except WeighbridgeError as error:
        return error.exit_code
    return 0


def resume(path, folder, draw):
    try:
        ResumableRun(path).close()
    except WeighbridgeError as error:
        return error.exit_code
    return 0


def report(path, folder, draw, formats=None):
    """Write reports in several formats, as one command does."""
    words = [f"--format={name}={folder / name}" for name in formats or draw.sample(FORMATS, FORMATS_AT_ONCE)]
    return run_command_line(["report-scenario", "-s", str(path), "-f", str(folder / "report"), *words])


READERS = {
    "report": report,
    "rates": lambda path, folder, draw: run_command_line(
        ["report-scenario", "-s", str(path), "-r", str(folder / "rates"), "-f", str(folder / "report"), "-q"]
    ),
    "show-output": lambda path, folder, draw: run_command_line(["show-output", "0", "-s", str(path)]),
    "compare": lambda path, folder, draw: run_command_line(
        ["compare", str(folder / "good.stats.gz"), "--new", str(path)]
    ),
    "earlier": lambda path, folder, draw: run_command_line(
        ["compare", str(path), "--new", str(folder / "good.stats.gz")]
    ),
    "archive": lambda path, folder, draw: run_command_line(
        ["archive", "add", str(path), "--archive", str(folder / "archive")]
    ),
    "notebook": read_tables,
    "resume": resume,
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Return what is changed: the stored blocks, the payloads and the bytes of files of each kind; and a folder."""
    folder = tmp_path_factory.mktemp("originals")
    files = [lifecycle_run(folder / "run.stats.gz"), object_run(folder / "objects.stats.gz"), imported_run(folder)]
    files += [places.ROOT / "docs" / "data" / f"{name}.stats.gz" for name in ("quickstart", "arrivals", "packing")]
    a_run(folder / "good.stats.gz")
    contents = [path.read_bytes() for path in files]
    return [(mutations.stored_blocks(one), mutations.payloads_of(one), one) for one in contents], folder


def changed_file(originals, draw):
    """Return the bytes of one of the files with some changes."""
    blocks, payloads, content = draw.choice(originals)
    what = draw.random()
    if what < 0.8:
        return mutations.with_odd_blocks(blocks, draw)
    return mutations.with_odd_payloads(payloads, draw) if what < 0.9 else mutations.with_odd_bytes(content, draw)


def check(name, path, folder, draw, **more):
    """Run a reader, which must end with an exit code of the tables, and with no fault of its own."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with redirect_stdout(out), redirect_stderr(io.StringIO()) as err:
        status = READERS[name](path, folder, draw, **more)
    told = err.getvalue()
    assert "internal error" not in told, told
    assert "Traceback" not in told, told
    assert status in range(5), (status, told)


@settings(max_examples=24, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(draw=st.randoms(use_true_random=False), name=st.sampled_from([*READERS, *(["report"] * 4)]))
def test_no_change_makes_a_reader_fail_badly(originals, draw, name):
    """Keys dropped, types changed, columns cut, blocks moved, bytes changed: exit codes, and no internal error."""
    files, folder = originals
    path = folder / "changed.stats.gz"
    path.write_bytes(changed_file(files, draw))
    check(name, path, folder, draw)


WITHOUT_TIMES = "the readings have no column time_ns"
ODD_BODIES = {
    "samples without columns": ("samples", lambda body: body | {"columns": {}}),
    "samples without rows and columns": ("samples", lambda body: body | {"rows": 0, "columns": {}}),
    "samples without their times": ("samples", lambda body: body | {"columns": without(body["columns"], "time_ns")}),
    "treatments without labels": (
        "header",
        lambda body: body | {"treatments": [without(one, "labels") for one in body["treatments"]]},
    ),
    "treatments of nothing": ("header", lambda body: body | {"treatments": [{}] * len(body["treatments"])}),
    "a bare header": ("header", lambda body: {key: body[key] for key in ("format", "version")}),
}


def without(items, key):
    """Return a map without a key."""
    return {name: value for name, value in items.items() if name != key}


@pytest.mark.parametrize("odd", list(ODD_BODIES))
def test_what_a_block_lacks_makes_no_reader_fail_badly(originals, odd):
    """Readings without times in a run that has times are damage, which one place finds for all readers."""
    files, folder = originals
    wanted, change = ODD_BODIES[odd]
    blocks = [(kind, change(body) if kind == wanted else body) for kind, body in files[0][0]]
    path = folder / "odd.stats.gz"
    path.write_bytes(chained(*(mutations.payload(*block) for block in blocks)))
    for name in READERS:
        check(name, path, folder, random.Random(1), **({"formats": FORMATS} if name == "report" else {}))
    stats = StatsFile(path)
    assert list(stats.blocks(everything=True))
    assert (WITHOUT_TIMES in str(stats.damage)) == (wanted == "samples")
