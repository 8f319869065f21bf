"""The goldens: what the reports of recorded runs look like, in tests/golden, byte for byte.

Usage: python tests/goldens.py, which makes them again. What then differs in git is what a change does to reports.
"""

import contextlib
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench_master.cli import run_command_line  # noqa: E402

FOLDER = ROOT / "tests" / "golden"
PAGES = ROOT / "tests" / "data" / "pages"
RUNS = {
    "quickstart": ROOT / "docs" / "data" / "quickstart.stats.gz",
    "matrix": PAGES / "matrix.stats.gz",
    "guest": PAGES / "cpu.stats.gz",
    "packing": PAGES / "packing-counts.stats.gz",
    "open": PAGES / "open.stats.gz",
    "objects": PAGES / "store.stats.gz",
    "imported": FOLDER / "imported.stats.gz",
    "damaged": FOLDER / "damaged.stats.gz",
}
FORMATS = {"text": "txt", "html": "html", "csv": "csv", "json": "json", "markdown": "md"}


def golden(run, name):
    """Return where the golden of a run in a format is."""
    return FOLDER / f"{run}.{FORMATS[name]}"


def report(run, name):
    """Return the report of a run in a format, as a terminal of 100 columns would show it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(RUNS[run], Path(folder, "run.stats.gz"))
        os.chdir(folder)
        try:
            out = io.StringIO()
            os.environ["COLUMNS"] = "100"
            words = ["-v"] if name == "text" else []
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                run_command_line([*words, "report-scenario", "-s", "run.stats.gz", "--format", name])
        finally:
            os.environ.pop("COLUMNS")
            os.chdir(before)
    return out.getvalue()


def main():
    """Make all of them again."""
    for run in RUNS:
        for name in FORMATS:
            golden(run, name).write_text(report(run, name), encoding="utf-8")


if __name__ == "__main__":
    main()
