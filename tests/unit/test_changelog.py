"""What a release takes its version from: one line of code, and a section of the changelog."""

import subprocess
import sys

import pytest
from deadlines import END_S
from places import ROOT

from bench_common import __version__

SCRIPT = ROOT / "script" / "packages" / "changelog.py"


def ask(path, version):
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(path), version], capture_output=True, text=True, timeout=END_S, check=False
    )


def test_the_changelog_has_a_section_for_the_version_of_the_code():
    """The first of them, so that a release never goes out under the title of an earlier one."""
    assert ask(ROOT / "CHANGELOG.rst", __version__).returncode == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "0.2.0 (unreleased)\n=====\n\n0.1.0 (2026-01-31)\n====\n",
            "the first section is that of 0.2.0; add one for 0.1.0",
        ),
        ("0.1.0 (soon)\n====\n", "no title of the form '1.2.3 (2026-01-31)' or '1.2.3 (unreleased)'"),
        ("0.1.0 (2026-01-31)\n\nNo title.\n", "no title of the form"),
    ],
)
def test_a_version_without_a_section_is_refused(text, expected, tmp_path):
    """With the place, what stands there, and what to do."""
    path = tmp_path / "CHANGELOG.rst"
    path.write_text(text)
    refused = ask(path, "0.1.0")
    assert refused.returncode == 2
    assert f"{path}: {expected}" in refused.stderr


def test_the_day_of_a_release_is_what_its_title_says(tmp_path):
    """It is printed, for the message of the script."""
    path = tmp_path / "CHANGELOG.rst"
    path.write_text("0.1.0 (2026-01-31)\n==================\n")
    assert ask(path, "0.1.0").stdout == "2026-01-31\n"
