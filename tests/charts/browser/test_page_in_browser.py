"""The HTML report in a real browser: nothing is loaded, nothing is hidden, nothing needs a mouse."""

import json

import pytest
from chart_runs import HOSTILE, run_of_two_engines, with_everything
from eyes import NARROW, WIDE
from msgspec.structs import replace
from workspace import Workspace

from bench_features.charts import CHART_MODULES
from bench_master.reports.html import HtmlReport
from bench_master.run_data.measured import MeasuredRun

TRUE_JOB = {"operations": ["run", "wait", "remove"], "container": {"command": ["/bin/true"]}}
"""A job of some milliseconds."""
LEAST_TEXT_PX = 11
"""Smaller text cannot be read on a telephone."""


SLOW_VIEWS = [pytest.param(*one, marks=pytest.mark.slow) for one in ((WIDE, False), (NARROW, True))]


class Source:
    """What a report is written from."""

    def __init__(self, stats, document):
        self.run, self.document = MeasuredRun(stats), document


def page_of(path, stats, document):
    with path.open("w", encoding="utf-8") as out:
        HtmlReport().write(Source(stats, document), out)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    stats, document = run_of_two_engines(tmp_path_factory.mktemp("run") / "run.stats.gz")
    return stats, with_everything(document)


@pytest.fixture(scope="module")
def report(run, tmp_path_factory):
    """Return a page with every chart."""
    return page_of(tmp_path_factory.mktemp("page") / "report.html", *run)


def texts_out_of_place(sight):
    """Return the texts that the browser draws outside of their picture, or too small to be read."""
    return sight.page.evaluate(
        """least => [...document.querySelectorAll("svg")].flatMap((svg) => {
            const frame = svg.getBoundingClientRect();
            return [...svg.querySelectorAll("text")].filter((text) => {
                const box = text.getBoundingClientRect();
                if (!box.width) return false;
                return box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 ||
                    box.bottom > frame.bottom + 1 || box.height < least;
            }).map((text) => text.textContent);
        })""",
        LEAST_TEXT_PX,
    )


@pytest.mark.parametrize(("width", "dark"), [(WIDE, True), (NARROW, False), *SLOW_VIEWS])
def test_a_page_is_clean_at_each_width_and_in_each_light(eyes, report, width, dark):
    """It asks for nothing, says nothing, is no wider than its window, and axe-core has nothing to object."""
    sight = eyes.look(report, width=width, dark=dark)
    assert sight.page.locator("svg:visible").count() >= len(CHART_MODULES)
    for summary in sight.page.locator("summary").all():
        summary.click()
    sight.assert_clean()
    assert texts_out_of_place(sight) == []


@pytest.mark.parametrize("width", [pytest.param(WIDE, marks=pytest.mark.slow), NARROW])
def test_hostile_texts_of_a_run_are_text(eyes, run, tmp_path, width):
    """Names, messages and command lines run no script, break no layout, and turn no line around."""
    stats, document = run
    words = " ".join(HOSTILE)
    document = replace(
        document,
        scenario=replace(document.scenario, name=words, description=words),
        run=replace(document.run, argv=["bench-master", *HOSTILE], run_id=words),
        hosts=[
            replace(each, host=words, engines={words: words}, fingerprint={words: words}) for each in document.hosts
        ],
        warnings=list(HOSTILE),
        treatments=[
            replace(
                each, title=f"{words}{place}", treatment={**each.treatment, "job": words, words: f"{words}{place}"}
            )
            for place, each in enumerate(document.treatments)
        ],
        stats_file=words,
    )
    sight = eyes.look(page_of(tmp_path / "hostile.html", stats, document), width=width)
    sight.assert_clean()
    assert sight.page.locator("script").count() == 1
    assert "<script>alert(1)</script>" in sight.page.locator("h1").inner_text()
    assert "\u202e" not in sight.page.content()
    assert texts_out_of_place(sight) == []


def test_a_page_needs_no_script(eyes, report):
    """Without scripts all charts and tables are there, and no button that does nothing."""
    page = eyes.look(report, scripts=False).page
    for name in CHART_MODULES:
        assert page.locator(f"section.{name} svg.wide").first.is_visible(), name
    assert page.locator("table").count() >= 3
    assert page.locator("button").count() == 0
    page.locator("section.host summary").click()
    assert page.locator("section.host details svg.wide").is_visible()


def test_a_page_needs_no_mouse(eyes, report):
    """Tab goes to the skip link, the theme and the contents in order; Enter skips, switches, sorts and unfolds."""
    sight = eyes.look(report)
    page = sight.page
    assert sight.press("Tab") == "Skip to the results"
    assert sight.press("Tab") == "Light / dark"
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    sight.press("Enter")
    assert page.evaluate(ground) != light
    sight.assert_accessible()
    sight.press("Enter")
    assert page.evaluate(ground) == light
    for region in page.locator(".first .scroll").all():
        sight.press("Tab")  # a table may be wider than the page
        assert region.evaluate("each => each === document.activeElement")
        # What is beyond its edge shows as a shadow.
        assert region.evaluate("each => getComputedStyle(each).backgroundAttachment") == "local, scroll"
    links = page.locator("nav a").all_inner_texts()
    assert [sight.press("Tab") for _ in links] == links
    sight.press("Enter")
    assert page.url.endswith("#again")
    table = page.locator("table", has=page.get_by_role("columnheader", name="timing error p99"))
    head = table.get_by_role("columnheader", name="concurrency")
    head.locator("button").focus()
    sight.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert table.locator("tbody tr td:nth-child(2)").all_inner_texts() == ["1", "1", "4", "4"]
    sight.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert table.locator("tbody tr td:nth-child(2)").all_inner_texts() == ["4", "4", "1", "1"]
    page.locator("section.host summary").focus()
    sight.press("Enter")
    assert page.locator("section.host details svg.wide").is_visible()


def test_a_printed_page_is_light_and_whole(eyes, report):
    """Printed by a dark browser it has dark ink on white paper, the wide charts, and no button or list of links."""
    sight = eyes.look(report, dark=True, printed=True)
    page = sight.page
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("svg.narrow:visible").count() == 0
    assert page.locator("section > figure > svg.wide:visible").count() == len(CHART_MODULES)
    assert page.locator("button.theme:visible, nav:visible").count() == 0
    folded = page.locator("details:not([open])")
    assert folded.count() > 0
    assert all(folded.evaluate_all("found => found.map(each => each.lastElementChild.checkVisibility())")), "unfolded"
    # A head with a control in it is not repeated on the next page.
    assert page.evaluate("getComputedStyle(document.querySelector('th button')).display") == "contents"
    width = page.evaluate("Math.max(...[...document.querySelectorAll('table')].map(each => each.scrollWidth))")
    assert width <= page.evaluate("document.querySelector('main').clientWidth")
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert sight.complaints == []


@pytest.fixture(scope="module")
def real_pages(tmp_path_factory):
    """Return the page of each kind of run, as the command writes it."""
    with Workspace(tmp_path_factory.mktemp("runs")) as workspace:
        folder = workspace.folder
        small = {"name": "small", "engines": ["native"], "repeats": 2, "matrix": {"concurrency": [1, 2]}}
        (folder / "whole.yaml").write_text(json.dumps(small | {"operation_count": 10, "job": TRUE_JOB}))
        objects = ["-f", "objects/quick", "--set", "engines=[noop]", "--set", "scale=small"]
        runs = {
            "whole": ["-f", str(folder / "whole.yaml")],
            "no-op": ["-f", str(folder / "whole.yaml"), "--noop"],
            "objects": objects,
        }
        for kind, words in runs.items():
            done = workspace.master("run-scenario", *words, "--workers", "1", "-s", str(folder / f"{kind}.gz"))
            assert done.status == 0, done.err
        whole = (folder / "whole.gz").read_bytes()
        (folder / "cut off.gz").write_bytes(whole[: len(whole) * 3 // 4])
        pages = {kind: folder / f"{kind}.html" for kind in (*runs, "cut off")}
        for kind, page in pages.items():
            words = ["-s", str(folder / f"{kind}.gz"), "--format", "html", "-f", str(page)]
            done = workspace.master("report-scenario", *words)
            assert done.status == (3 if kind == "cut off" else 0), done.err
        yield pages


@pytest.mark.parametrize("kind", ["whole", "cut off", "no-op", "objects"])
def test_pages_of_real_runs_are_clean(eyes, real_pages, kind):
    """A run, one whose file was cut off, a no-op run and one on objects: each has a page that can be read."""
    sight = eyes.look(real_pages[kind], width=NARROW)
    sight.assert_clean()
    assert texts_out_of_place(sight) == []
    words = sight.page.locator("main").inner_text()
    assert ("What limits belief" in words) >= (kind in ("cut off", "no-op"))
    assert ("NO-OP: nothing was executed" in words) == (kind == "no-op")
    assert ("The run is" in words) >= (kind == "cut off")
    assert sight.page.locator("section.trials svg.narrow").count() == 1
    sight.page.set_viewport_size({"width": WIDE, "height": 1600})
    sight.assert_no_sideways_scroll()
    assert sight.page.locator("section.trials svg.wide").is_visible()
    assert texts_out_of_place(sight) == []
