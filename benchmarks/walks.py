"""How often `run-scenario --archive --baseline trend --format html` reads its stats file from beginning to end.

The file is written with the project's own writer; what follows a run is then done in this process, once with room to
keep the blocks that are needed again, and once without, as for a file of some millions of jobs.

    python benchmarks/walks.py [--jobs N]
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from common import numbers, parser_of
from report_time import write

COMMAND = ("--archive", "--baseline", "trend", "--format", "html")


@contextlib.contextmanager
def counted_walks() -> Iterator[list[Path]]:
    """Give a list that gets the path of each stats file whenever more of it is read than its header."""
    from bench_common.stats.reader import Block, StatsFile

    walks: list[Path] = []
    walk = StatsFile._intact_blocks  # noqa: SLF001  every walk goes through it

    def counting(self: StatsFile, kinds: Collection[str] | None, **more: Any) -> Iterator[Block]:
        blocks = walk(self, kinds, **more)
        first = next(blocks, None)
        if first is not None:
            yield first
        # Who wants no more than the first block ends it here.
        walks.append(self.path)
        yield from blocks

    with patch.object(StatsFile, "_intact_blocks", counting):
        yield walks


def walks_after_a_run(stats: Path, archive: Path, room: int | None = None) -> list[Path]:
    """Return the files that were read, each as often as it was, for what the command does when its run has ended.

    With `room` blocks of so many bytes at most are kept.
    """
    from bench_common.cli import read_options
    from bench_common.stats import reader
    from bench_master.cli import build_parser
    from bench_master.commands.run_scenario import finish_run
    from bench_master.options.run import RunOptions
    from bench_master.run.session import RunResult
    from bench_master.run_extension import settled

    flag, *others = COMMAND
    words = ["run-scenario", "-f", "s.yaml", "-q", f"{flag}={archive}", *others]
    options = settled(read_options(RunOptions, build_parser(["run-scenario"]).parse_args(words)))
    with (
        patch.object(reader, "MAX_KEPT_BYTES", reader.MAX_KEPT_BYTES if room is None else room),
        counted_walks() as walks,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        finish_run(RunResult("complete", stats=stats), options)
    return walks


def main() -> None:
    """Print the number of walks."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=numbers, default="10k", help="such as 10k")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder, "run.stats.gz")
        write(str(stats), options.jobs[0], 3)
        for number, (what, room) in enumerate((("a file that fits into memory", None), ("a larger one", 0))):
            walks = walks_after_a_run(stats, Path(folder, f"archive-{number}"), room)
            print(f"walks of {what}: {len(walks)}")


if __name__ == "__main__":
    sys.exit(main())
