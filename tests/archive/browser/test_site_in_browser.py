"""The archive's site in a real browser: every page at both widths, dark, without scripts and without a mouse."""

import os
import subprocess
import sys

import pytest
from archive_site import RUNS, fill
from eyes import NARROW, WIDE

from bench_features.archive.archive import Archive


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Return the address that the program prints, with its token; the ids of the runs; and the key of a series."""
    folder = tmp_path_factory.mktemp("served")
    ids = fill(str(folder / "archive"), folder)
    with Archive.open(str(folder / "archive")) as archive:
        key = next(one.key for one in archive.series() if (one.hosts, one.scenario) == ("blade1", "quickstart"))
    command = [sys.executable, "-m", "bench_master", "-q", "serve", "--archive", folder / "archive", "--bind", "0"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().strip(), ids, key
        finally:
            server.kill()


def pages_of(ids, key):
    """Return the address of each kind of page, with hostile texts where there are some."""
    return [
        "/runs?sort=-done",
        f"/runs/{ids[0]}",
        f"/runs/{ids[RUNS]}",
        f"/runs/{ids[-1]}",
        f"/compare?a={ids[0]}",
        f"/compare?a={ids[0]}&b={ids[1]}",
        "/series",
        f"/series/{key}",
        "/hosts",
        "/host?name=blade1",
        "/hosts/difference?a=blade1&b=%3Cscript%3Ealert(1)%3C/script%3E",
        "/runs?scenario=quikstart",
    ]


def signed_in(eyes, printed, path, **options):
    """Open a page, and paste the token into the form that asks for it."""
    address, token = printed.split("/#t=")
    sight = eyes.look(f"{address}{path}", **options)
    page = sight.page
    page.fill("#token", token)
    page.click("main button")
    page.wait_for_selector("#token", state="detached")
    page.wait_for_load_state()
    sight.complaints.clear()  # of the page that was refused before
    return sight


def follow(page, selector):
    """Click what leads to another page, and wait until that page is there whole."""
    with page.expect_navigation():
        page.click(selector)


@pytest.mark.parametrize(
    ("width", "dark", "read"),
    [
        (NARROW, False, range(12)),
        (WIDE, True, (0, 1, 7, 10)),
        pytest.param(WIDE, True, range(12), marks=pytest.mark.slow),
    ],
    ids=["narrow", "wide-dark", "wide-dark-all"],
)
def test_every_page_is_clean(eyes, served, width, dark, read):
    """It loads nothing from elsewhere, is no wider than its window, and axe-core has nothing to object.

    In the dark, whose colours are those of one style for all pages, axe-core reads one page of each layout.
    """
    printed, ids, key = served
    address = printed.partition("/#")[0]
    sight = eyes.look(f"{address}/", width=width, dark=dark)
    sight.assert_no_sideways_scroll()
    sight.assert_accessible()
    sight = signed_in(eyes, printed, "/", width=width, dark=dark)
    paths = pages_of(ids, key)
    assert len(paths) == 12
    for number, path in enumerate(paths):
        sight.page.goto(f"{address}{path}")
        for summary in sight.page.locator("summary").all():
            summary.click()
        sight.complaints = [text for text in sight.complaints if "404" not in text]
        sight.assert_no_complaints()
        sight.assert_loads_only_its_own()
        sight.assert_no_sideways_scroll()
        if number in read:
            sight.assert_accessible()
        assert "\u202e" not in sight.page.content()
        assert sight.page.locator("h1").inner_text()


def test_the_printed_address_signs_in(eyes, served):
    """The token leaves the address bar, and the next address needs none; a wrong one says so."""
    printed, _, _ = served
    address = printed.partition("/#")[0]
    sight = eyes.look(f"{address}/")
    sight.page.goto(printed)  # only the fragment changes
    sight.page.wait_for_url(f"{address}/runs")
    assert "#" not in sight.page.url
    sight = eyes.look(f"{address}/#t=wrong")
    # wait_for_function evaluates a string again and again, which the page's policy refuses.
    sight.page.locator(".answer", has_text="not valid").wait_for()


def test_the_site_needs_no_script(eyes, served):
    """Signing in, searching, sorting, turning pages, comparing and choosing a measure are forms and links."""
    printed, ids, key = served
    address = printed.partition("/#")[0]
    page = signed_in(eyes, printed, "/runs?scenario=quickstart", scripts=False).page
    assert page.url == f"{address}/runs?scenario=quickstart"
    follow(page, "th a:text('begun')")
    assert page.locator("th[aria-sort=ascending]").count() == 1
    page.fill("#by-tag", "release-1")
    follow(page, "main button")
    assert page.locator("tbody tr").count() == 1
    follow(page, "tbody th a")
    assert page.url == f"{address}/runs/{ids[0]}"
    assert page.locator("article svg:visible").count() >= 1
    follow(page, "text=Compare a later run with this one")
    follow(page, "tbody tr:first-child td:last-child a")
    assert "REFUSED" in page.inner_text("main")
    page.goto(f"{address}/series/{key}")
    page.select_option("#pick-measure", "start.p95")
    follow(page, "main button")
    assert "start.p95" in page.inner_text("figcaption")
    page.goto(f"{address}/hosts")
    follow(page, "main button")
    assert "differ" in page.inner_text(".answer")


def test_the_site_needs_no_mouse(eyes, served):
    """Tab goes from the skip link through the sections to the search; Enter searches and follows a run."""
    printed, ids, _ = served
    address = printed.partition("/#")[0]
    sight = signed_in(eyes, printed, "/runs")
    assert sight.press("Tab") == "Skip to the results"
    assert [sight.press("Tab") for _ in range(4)] == ["Runs", "Compare", "Series", "Hosts"]
    sight.press("Tab", 2)
    sight.page.keyboard.type("quickstart")
    with sight.page.expect_navigation():
        sight.page.keyboard.press("Enter")
    assert "scenario=quickstart" in sight.page.url
    sight.page.locator("tbody tr:first-child th a").focus()
    with sight.page.expect_navigation():
        sight.page.keyboard.press("Enter")
    assert sight.page.url == f"{address}/runs/{ids[RUNS - 1]}"
