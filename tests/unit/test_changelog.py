"""What a release takes its version from: one line of code, and a section of the changelog."""

import subprocess
import sys

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
