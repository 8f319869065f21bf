"""Entry point of `bench-worker`: patches first, then everything else."""

from bench_common.limits import require_to_load
from bench_common.startup import (
    compile_on_demand,
    end_on_interrupt,
    hold_collector,
    limit_malloc_arenas,
    skip_docker_ssh,
    skip_gevent_plugins,
)

end_on_interrupt()
hold_collector()
compile_on_demand()
limit_malloc_arenas()
require_to_load("bench-worker")
skip_gevent_plugins()
skip_docker_ssh()

from gevent import monkey  # noqa: E402  it takes a while to load

monkey.patch_all()

import sys  # noqa: E402  the patch must come before any other import


def main() -> None:
    """Run the command line and leave with its exit code."""
    from bench_common.cli import harden_streams, silence_interrupts
    from bench_worker.cli import run_command_line

    harden_streams()
    silence_interrupts()
    sys.exit(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
