"""Entry point of `bench-worker`: patches first, then everything else."""

import sys

from bench_common.limits import require_to_load
from bench_common.startup import end_on_interrupt, hold_collector, limit_malloc_arenas

end_on_interrupt()
hold_collector()
limit_malloc_arenas()
require_to_load("bench-worker")

from gevent import monkey  # noqa: E402  what is above must come first

monkey.patch_all()


def main() -> None:
    """Run the command line and leave with its exit code."""
    from bench_common.guard import silence_interrupts
    from bench_common.streams import harden_streams
    from bench_worker.cli import run_command_line

    harden_streams()
    silence_interrupts()
    sys.exit(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
