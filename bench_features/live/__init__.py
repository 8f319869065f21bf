"""The live page: a run in a browser while it runs (``--web``). Here are its options, and its part in a run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Struct

from bench_common.errors import UsageError
from bench_common.options import Option, add_options
from bench_master.run_extension import FIRST_RESULTS, RESULTS, OptionGroups, RunExtension, RunObserver
from bench_master.web.address import DEFAULT_HOST, Address, parse_address

if TYPE_CHECKING:
    from bench_master.options.run import RunOptions

PORT: Final = 8089
"""The port of the page if the command line names none."""


def _address(text: str) -> Address:
    return parse_address(text, PORT)


class LiveOptions(Struct, frozen=True):
    """The options of the page that shows a run."""

    web: Annotated[
        Address | None,
        Option(
            "--web ADDRESS",
            f"show the run on a web page while it lasts (default: {DEFAULT_HOST}:{PORT}; port 0 is a free one)",
            nargs="?",
            const=parse_address("", PORT),
            type=_address,
        ),
    ] = None
    web_control: Annotated[
        bool, Option("--web-control", "let the page stop the run, as one Ctrl-C does; needs --web")
    ] = False
    web_insecure_bind: Annotated[
        bool,
        Option(
            "--web-insecure-bind",
            "let --web name an address that other machines reach: the page and its token are not encrypted",
        ),
    ] = False


class LiveExtension(RunExtension):
    """Serves the page while a run lasts."""

    Options = LiveOptions

    def add_options(self, groups: OptionGroups) -> None:
        """Add ``--web`` and what belongs to it."""
        add_options(groups.named(RESULTS), LiveOptions)
        groups.show_first(FIRST_RESULTS, "--web")

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
