"""The archive's pages in a real browser: wide, narrow, dark and printed."""

import pytest
from archive_runs import a_run
from eyes import NARROW
from places import ROOT

from bench_master.cli import run_command_line


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Return the page of an archive with a trend, and with runs of several treatments."""
    folder = tmp_path_factory.mktemp("archive")
    runs = [a_run(folder / f"{number}.stats.gz", number) for number in range(3)]
    recorded = sorted((ROOT / "tests" / "data" / "pages").glob("[ce]*.stats.gz"))
    place = ["--archive", str(folder / "kept")]
    assert run_command_line(["archive", "add", *map(str, [*runs, *recorded]), *place]) == 0
    assert run_command_line(["archive", "html", str(folder / "pages"), *place]) == 0
    return folder / "pages" / "index.html"


HOW = {"wide": {}, "narrow": {"width": NARROW}, "dark": {"dark": True}, "paper": {"dark": True, "printed": True}}


@pytest.mark.parametrize("name", HOW)
def test_a_page_is_clean(eyes, page, name):
    """It loads nothing, is no wider than its window, and can be read by everybody; paper is white."""
    sight = eyes.look(page, **HOW[name])
    if name == "paper":
        sight.assert_no_complaints()
        sight.assert_no_sideways_scroll()
    else:
        sight.assert_clean()
    white = sight.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert white == (name != "dark")
    assert sight.page.locator("table a").count() > 0
