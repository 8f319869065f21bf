"""The documentation as a site: built from a fresh copy without a warning, whole, and good to use without a server."""

import json
import os
import shutil
import subprocess
import sys
from argparse import SUPPRESS

import pytest
from check_site import faults, read
from command_pages import all_parsers, page_of
from deadlines import BUILD_S, LONG_TEST_S
from documents import ROOT
from eyes import NARROW, WIDE
from scenario_keys import key_name

from bench_master.scenario import scenario_schema

pytestmark = pytest.mark.timeout(LONG_TEST_S)

ARGV = ["-m", "sphinx", "-W", "--keep-going", "-n", "-q"]
NEEDED = ("README.rst", "CONTRIBUTING.rst", "CHANGELOG.rst", "LICENSE", "benchmarks/README.rst")
PAGES = (
    "index.html",
    "tutorial.html",
    "notebooks.html",
    "generated/commands/compare.html",
    "site/python.html",
    "site/pictures.html",
)
"""Each kind of page, the first three at both widths; the longest ones axe-core would read for half a minute."""
LONG = (
    "reports.html",
    "site/readme.html",
    "generated/commands/run-scenario.html",
    "site/scenario-keys.html",
    "scenario-reference.html",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the site, built from a copy that has no more than the repository has."""
    copy = tmp_path_factory.mktemp("fresh")
    shutil.copytree(ROOT / "docs", copy / "docs", ignore=shutil.ignore_patterns("generated", "__pycache__"))
    for name in NEEDED:
        (copy / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    built = subprocess.run(
        [sys.executable, *ARGV, "-d", copy / "doctrees", copy / "docs", copy / "html"],
        cwd=copy,
        # A proxy that nobody answers: whatever asks the network fails.
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "http_proxy": "http://127.0.0.1:9",
            "https_proxy": "http://127.0.0.1:9",
        },
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    return copy / "html"


def test_the_script_builds_it_in_the_same_way():
    """`script/docs` calls Sphinx with the words that the test uses."""
    assert " ".join(ARGV) in (ROOT / "script" / "docs").read_text()


def test_a_wrong_link_would_be_found(tmp_path):
    """The check names a missing page, a missing place, a way out of the site, and what is loaded from elsewhere."""
    (tmp_path / "site").mkdir()
    (tmp_path / "outside.html").write_text("")
    (tmp_path / "site" / "a.html").write_text(
        '<p id="here"><a href="#here">good</a><a href="a.html">good</a><a href="https://example.org/">not asked</a>'
        '<a href="b.html">1</a><a href="#there">2</a><a href="../outside.html">3</a>'
        '<script src="https://example.org/x.js"></script>'
    )
    found = faults(tmp_path / "site")
    assert [line.split(": ", 1)[1] for line in found] == [
        "loads https://example.org/x.js, which is elsewhere",
        "b.html leads to no file",
        "#there leads to no place on that page",
        "../outside.html leads out of the site",
    ]
    assert faults(tmp_path / "none") != []


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site):
    """Of every page, those made from the program included."""
    assert faults(site) == []


def anchors_of(parser):
    """Yield the ids of the options and arguments that a command's help shows."""
    program = parser.prog.replace(" ", "-")
    for _, _, actions in parser.groups():
        for action in actions:
            if action.help != SUPPRESS:
                words = action.option_strings or [f"arg-{action.metavar or action.dest}"]
                yield from (f"cmdoption-{program}-{word.lstrip('-')}" for word in words)


def test_every_command_and_option_has_its_place(site):
    """A page for each command, and an anchor for each of its options and arguments."""
    parsers = list(all_parsers())
    assert {"bench-master", "bench-worker", "bench-master run-scenario"} <= {parser.prog for parser in parsers}
    missing = []
    for parser in parsers:
        ids = read(site / "generated" / "commands" / f"{page_of(parser)}.html").ids
        missing += [anchor for anchor in anchors_of(parser) if anchor not in ids]
    assert missing == []


def test_every_scenario_key_has_its_place(site):
    """An anchor for each key of the schema, at the top level and in each of its parts."""
    ids = read(site / "site" / "scenario-keys.html").ids
    schema = scenario_schema()
    names = [*schema["properties"]]
    for part, value in schema["$defs"].items():
        if part not in ("cell", "matrix"):
            names += [key_name(part, key) for key in value.get("properties", ())]
    assert len(names) > 100
    assert [name for name in names if f"scenario-key-{name}" not in ids] == []


def test_the_python_interface_is_there(site):
    """Each public method of `weighbridge.Results`, the function that makes one, and what extensions subclass."""
    import weighbridge

    ids = read(site / "site" / "python.html").ids
    methods = [f"weighbridge.Results.{name}" for name in vars(weighbridge.Results) if not name.startswith("_")]
    assert {"weighbridge.load", "weighbridge.Results", *methods} <= ids
    bases = {"workloads.base.Workload", "bench_worker.engines.base.Engine", "bench_worker.stores.base.Store"}
    assert {*bases, "bench_master.reports.Report"} <= read(site / "site" / "extending.html").ids


@pytest.mark.parametrize("width", [pytest.param(WIDE, marks=pytest.mark.slow), NARROW])
def test_its_main_pages_are_clean_in_a_browser(eyes, site, width):
    """No complaint, nothing from elsewhere, no sideways scroll, and axe-core has nothing to object."""
    for name in (*PAGES, *LONG):
        sight = eyes.look(site / name, width=width, dark=width == NARROW)
        sight.assert_no_complaints()
        assert [url for url in sight.requests if not url.startswith(("file:", "data:"))] == []
        sight.assert_no_sideways_scroll()
        if name in (PAGES if width == WIDE else PAGES[:3]):
            sight.assert_accessible()


def test_search_needs_no_server(eyes, site):
    """Typed into a page that was opened from a folder, an option and a key lead to their anchors."""
    for words, place in (
        ("--resume", "#cmdoption-bench-master-run-scenario-resume"),
        ("queue_timeout", "#scenario-key-queue_timeout"),
    ):
        sight = eyes.look(site / "index.html")
        sight.page.get_by_role("textbox", name="Search").fill(words)
        sight.page.keyboard.press("Enter")
        sight.page.wait_for_selector("#search-results li a")
        links = sight.page.eval_on_selector_all("#search-results li a", "all => all.map(each => each.href)")
        assert any(place in link for link in links), json.dumps(links[:5])
        sight.assert_no_complaints()


def test_the_example_page_and_the_pictures_are_those_of_a_real_run(eyes, site):
    """The report of the quickstart opens from the site, and each picture is described and not empty."""
    sight = eyes.look(site / "site" / "pictures.html")
    seen = "all => all.filter(each => each.checkVisibility()).length"
    assert sight.page.eval_on_selector_all("img.picture.wide", seen) >= 6
    assert sight.page.eval_on_selector_all("img.picture.narrow", seen) == 0
    shown = sight.page.eval_on_selector_all(
        "img.picture", "all => all.map(each => [each.alt.length, each.complete, each.naturalWidth])"
    )
    assert len(shown) >= 6
    assert all(described > 40 and complete and width > 0 for described, complete, width in shown)
    sight.page.get_by_role("link", name="quickstart", exact=True).click()
    sight.page.wait_for_url("**/examples/quickstart.html")
    assert "quickstart" in sight.page.title()
    assert sight.page.locator("svg").count() > 4
