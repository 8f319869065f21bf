"""Entry point of `bench-master`: patches first, then everything else."""

import sys

from bench_common.limits import require_to_load
from bench_common.startup import (
    compile_on_demand,
    end_on_interrupt,
    hold_collector,
    limit_malloc_arenas,
    skip_gevent_plugins,
)

NAMES_A_COMMAND = any(not word.startswith("-") for word in sys.argv[1:])
"""Whether a sub-command may run; help and version need no event loop, which takes longer to load than they do."""

end_on_interrupt()
hold_collector()
compile_on_demand()
limit_malloc_arenas()
require_to_load("bench-master")

if NAMES_A_COMMAND:
    skip_gevent_plugins()

    from gevent import monkey  # it takes a while to load

    monkey.patch_all()


def main() -> None:
    """Run the command line and leave with its exit code."""
    # The patch must come before these imports.
    from bench_common.cli import harden_streams, silence_interrupts
    from bench_master.cli import run_command_line

    harden_streams()
    if NAMES_A_COMMAND:
        silence_interrupts()
    sys.exit(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
