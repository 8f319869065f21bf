"""Entry point of `bench-master`: patches first, then everything else."""

import sys

from bench_common.limits import require_to_load
from bench_common.secret import hide_arguments
from bench_common.startup import end_on_interrupt, hold_collector, limit_malloc_arenas

hide_arguments(sys.argv[1:])

NAMES_A_COMMAND = any(not word.startswith("-") for word in sys.argv[1:])
"""Whether a sub-command may run; help and version need no event loop, which takes longer to load than they do."""

end_on_interrupt()
hold_collector()
limit_malloc_arenas()
require_to_load("bench-master")

if NAMES_A_COMMAND:
    from gevent import monkey  # it takes a while to load

    monkey.patch_all()


def main() -> None:
    """Run the command line and leave with its exit code."""
    # The patch must come before these imports.
    from bench_common.guard import silence_interrupts
    from bench_common.streams import harden_streams
    from bench_master.cli import run_command_line

    harden_streams()
    if NAMES_A_COMMAND:
        silence_interrupts()
    sys.exit(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
