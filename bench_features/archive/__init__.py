"""The archive: every run that was added, found again by what it measured, when and where.

Stats files are the truth: they are kept under the hash of their content. The index beside them can be thrown away,
for it is made again from them; which changes are acknowledged is in a file of its own. Nothing is sent anywhere.

Here are its sub-commands, as ``--help`` lists them; `run_extension` has its part in a run.
"""

from __future__ import annotations

from typing import Final

from bench_master.commands import CommandEntry

ARCHIVE: Final = CommandEntry(
    "keep runs in an archive, find them again, compare them, and see since when something changed",
    "bench_features.archive.commands",
)
