"""`bench-master serve`: the archive as pages in a browser."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

from msgspec import Struct

from bench_common.errors import ExitCode
from bench_common.streams import tell
from bench_features.archive.archive import Archive
from bench_features.archive.options import add_archive_option
from bench_master.web.address import DEFAULT_HOST, Address, bound_address, listen, parse_address
from bench_master.web.guard import new_token

PORT: Final = 8090
EPILOG: Final = f"""\
It shows the runs of the archive (search by scenario, host, tag and time), each run's report, any two runs compared,
series over time with their changes, and hosts; /api/ has the same as JSON. Nothing can be changed there. Addresses
hold all that a page shows: send them on. Ctrl-C ends it.

  bench-master serve                                  # the default archive, at http://{DEFAULT_HOST}:{PORT}/
  bench-master serve --archive /srv/bench --bind 9000
  ssh -L {PORT}:{DEFAULT_HOST}:{PORT} THAT-HOST              # look at the pages of another machine from this one

Who opens the printed address, with its #t=TOKEN, may read; without scripts, paste the token into the form. It needs
Flask: pip install 'weighbridge[serve]'.
"""


class Options(Struct, frozen=True):
    """The command line of `serve`."""

    archive: str | None
    """Where the archive is; None for the default."""
    bind: Address | None
    """Where to listen; None for the default."""
    insecure_bind: bool
    """Whether other machines may reach it."""
    no_token: bool
    """Whether whoever reaches the port may read."""
    quiet: bool = False
    """Print the address only."""


def _bind(text: str) -> Address:
    return parse_address(text, PORT)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = EPILOG
    add_archive_option(parser)
    parser.add_argument(
        "--bind",
        type=_bind,
        metavar="ADDRESS[:PORT]",
        help=f"where to listen; port 0 is a free one (default: {DEFAULT_HOST}:{PORT}, reachable from this machine "
        "only)",
    )
    parser.add_argument(
        "--insecure-bind",
        action="store_true",
        help="listen at an address that other machines reach, although nothing is encrypted",
    )
    parser.add_argument(
        "--no-token",
        action="store_true",
        help="let everybody read who reaches the port, such as behind a proxy that asks who they are",
    )


def run(options: Options) -> int:
    """Serve until Ctrl-C."""
    from bench_features.archive.site.app import create_app, serve_forever
    from bench_features.archive.site.site import BackgroundThread, ReportCache, Site, cache_folder

    with Archive.open(options.archive) as archive:
        site = Site(archive, ReportCache(cache_folder()), BackgroundThread())
        create_app(site)  # says what is missing before the port is taken
        listener = listen(
            options.bind or Address(DEFAULT_HOST, PORT),
            option="--bind",
            allow_any=options.insecure_bind,
            allow_flag="--insecure-bind",
        )
        token = None if options.no_token else new_token()
        at = f"http://{bound_address(listener)}/"
        sys.stdout.write(f"{at}#t={token}\n" if token else f"{at}\n")
        sys.stdout.flush()
        if not options.quiet:
            tell(f"serving {archive.address.shown}; Ctrl-C ends it")
        try:
            serve_forever(site, listener, token)
        except KeyboardInterrupt:
            if site.background.waiting:
                # What a page waits for is not waited for: nothing is lost by ending in the middle of it.
                tell("bench-master: interrupted")
                os._exit(int(ExitCode.INTERRUPTED))
            raise
    return int(ExitCode.OK)
