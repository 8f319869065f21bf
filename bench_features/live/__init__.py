"""The live page: a run in a browser while it runs (``--web``). Here are its options, and its part in a run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from bench_common.errors import UsageError
from bench_master.run_extension import FIRST_RESULTS, RESULTS, OptionGroups, RunExtension, RunObserver
from bench_master.web.address import DEFAULT_HOST, Address, parse_address

if TYPE_CHECKING:
    from bench_master.options.run import RunOptions

PORT: Final = 8089
"""The port of the page if the command line names none."""


class LiveOptions(Struct, frozen=True):
    """The options of the page that shows a run."""

    web: Address | None = None
    """Where to serve it; None: nowhere."""
    web_control: bool = False
    """Let its readers stop the run."""
    web_insecure_bind: bool = False
    """Serve it at an address that other machines reach."""


class LiveExtension(RunExtension):
    """Serves the page while a run lasts."""

    Options = LiveOptions

    def add_options(self, groups: OptionGroups) -> None:
        """Add ``--web`` and what belongs to it."""
        group = groups.named(RESULTS)
        group.add_argument(
            "--web",
            nargs="?",
            const=parse_address("", PORT),
            type=lambda text: parse_address(text, PORT),
            metavar="ADDRESS",
            help=f"show the run on a web page while it lasts (default: {DEFAULT_HOST}:{PORT}; port 0 is a free one)",
        )
        groups.show_first(FIRST_RESULTS, "--web")
        group.add_argument(
            "--web-control", action="store_true", help="let the page stop the run, as one Ctrl-C does; needs --web"
        )
        group.add_argument(
            "--web-insecure-bind",
            action="store_true",
            help="let --web name an address that other machines reach: the page and its token are not encrypted",
        )

    def around(self, options: RunOptions) -> AbstractContextManager[RunObserver | None]:
        """Return the page, which listens while it is open; raise `UsageError` where it cannot."""
        own = options.extensions.of(LiveOptions)
        if own.web is not None:
            from bench_features.live.live_page import open_live_page

            return open_live_page(
                own.web, control=own.web_control, allow_any=own.web_insecure_bind, verdicts=options.verdicts
            )
        for flag, given in (("--web-control", own.web_control), ("--web-insecure-bind", own.web_insecure_bind)):
            if given:
                raise UsageError(f"{flag}: there is no page without --web; add --web, or leave {flag} out")
        return nullcontext()


LIVE: Final = LiveExtension()
