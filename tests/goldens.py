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
    "failed": PAGES / "failed.stats.gz",
}
RECORDED = {
    path.name.partition(".")[0]: path
    for path in (*(ROOT / "docs" / "data").glob("*.stats.gz"), *PAGES.glob("*.stats.gz"), *FOLDER.glob("*.stats.gz"))
}
"""All recorded runs: of each the first page is kept."""
PAGE = "page"
FORMATS = {"text": "txt", "html": "html", "csv": "csv", "json": "json", "markdown": "md"}


def golden(run, name):
    """Return where the golden of a run in a format, or of its first page, is."""
    return FOLDER / f"{run}.{'page.txt' if name == PAGE else FORMATS[name]}"


def wanted():
    """Return the pairs of run and format that have a golden."""
    return [(run, name) for run in RUNS for name in FORMATS] + [(run, PAGE) for run in sorted(RECORDED)]


def report(run, name):
    """Return the report of a run in a format, as a terminal of 100 columns would show it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(RECORDED[run] if name == PAGE else RUNS[run], Path(folder, "run.stats.gz"))
        os.chdir(folder)
        try:
            out = io.StringIO()
            os.environ["COLUMNS"] = "100"
            words = ["-v"] if name == "text" else []
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                form = "text" if name == PAGE else name
                run_command_line([*words, "report-scenario", "-s", "run.stats.gz", "--format", form])
        finally:
            os.environ.pop("COLUMNS")
            os.chdir(before)
    return out.getvalue()


def main():
    """Make all of them again."""
    for run, name in wanted():
        golden(run, name).write_text(report(run, name), encoding="utf-8")


if __name__ == "__main__":
    main()
