"""Entry point of `bench-master`: patches first, then everything else."""

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402  the patch must come before any other import


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        from bench_common.terminal import quiet_interrupts, steady_streams
        from bench_master.cli import run_command_line

        steady_streams()
        quiet_interrupts()
        sys.exit(run_command_line(sys.argv[1:]))
    except KeyboardInterrupt:  # while the program was still being loaded
        sys.exit(130)


if __name__ == "__main__":
    main()
