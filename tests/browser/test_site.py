"""The documentation as a site: built from a fresh copy without a warning, whole, and good to use without a server."""

import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from argparse import SUPPRESS
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import terminal_recording
import versions
from check_site import faults, read
from command_pages import all_parsers, anchors, page_of
from deadlines import BUILD_S, END_S, LONG_END_S, LONG_TEST_S, SLOW_BUILD_S, SLOW_TEST_S
from documents import ROOT
from eyes import NARROW, WIDE
from scenario_keys import key_name

from bench_common.stats.reader import StatsFile
from bench_master.reports import ReportSource
from bench_master.reports.text import TextReport
from bench_master.scenario import scenario_schema

pytestmark = pytest.mark.timeout(LONG_TEST_S)

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
    """Return the working tree's folder of a site, built from a copy that has no more than the repository has."""
    copy = tmp_path_factory.mktemp("fresh")
    shutil.copytree(ROOT / "docs", copy / "docs", ignore=shutil.ignore_patterns("generated", "__pycache__"))
    for name in NEEDED:
        (copy / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    built = subprocess.run(
        [sys.executable, copy / "docs" / "_ext" / "versions.py", copy / "site"],
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
    return copy / "site" / "dev"


def test_the_script_builds_it_in_the_same_way():
    """`script/docs` calls the module that the test calls."""
    assert '"$python" docs/_ext/versions.py "$site"' in (ROOT / "script" / "docs").read_text()


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
    """Of every page, those made from the program and the start of the site included."""
    assert faults(site.parent) == []


def anchors_of(parser):
    """Yield the ids of the options and arguments that a command's help shows."""
    for _, _, actions in parser.groups():
        for action in actions:
            if action.help != SUPPRESS:
                yield from anchors(parser, action)


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
    bases = {
        "bench_workloads.base.Workload",
        "bench_worker.engines.base.Engine",
        "bench_features.objects.worker.base.Store",
    }
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


def test_the_start_page_has_a_report_an_install_line_and_four_doors(eyes, site):
    """The report is what the program prints of the recorded run; each door has a command and leads to a page."""
    printed = io.StringIO()
    source = ReportSource(StatsFile(ROOT / "docs" / "data" / "weigh.stats.gz"))
    TextReport().write(source, printed)
    page = eyes.look(site / "index.html").page
    shown = page.locator("main pre, article pre").all_inner_texts()
    assert printed.getvalue().strip() in [text.strip() for text in shown]
    assert any(text.startswith("pip install ") for text in shown)
    doors = page.locator(".doors > .door")
    assert [one.split(".")[0] for one in doors.locator("strong").all_inner_texts()] == [
        "Compare engines",
        "Gate a build",
        "Load a store",
        "Measure a fleet",
    ]
    for number in range(4):
        assert doors.nth(number).locator("code").count() == 1
        assert doors.nth(number).locator("a").count() >= 1


def test_the_start_page_shows_the_last_screen_of_the_recording(site):
    """As the recorded run left it: the line that was typed, its report without a failed job; and a link to it."""
    header, screen = terminal_recording.read(ROOT / "docs" / "data" / "first-run.cast")
    assert screen.startswith(f"$ {header['command']}\n")
    assert " 0 failed" in screen
    assert max(map(len, screen.splitlines())) <= header["width"]
    text = html.unescape(re.sub(r"<[^>]+>", "", (site / "index.html").read_text("utf-8")))
    assert screen in text
    assert "examples/first-run.cast" in read(site / "index.html").links
    assert (site / "examples" / "first-run.cast").read_bytes() == (
        ROOT / "docs" / "data" / "first-run.cast"
    ).read_bytes()


@pytest.fixture(scope="module")
def two_versions(site, tmp_path_factory):
    """Return a site that has a release, too, which lacks the gallery."""
    root = tmp_path_factory.mktemp("versions") / "below" / "an address"
    for name in ("dev", "0.0.9"):
        shutil.copytree(site, root / name, copy_function=os.link)
    (root / "0.0.9" / "site" / "gallery.html").unlink()
    versions.write_start(root)
    return root


def choose_version(sight, version):
    """Open the list by keyboard, and follow the link of a version; return what the list had."""
    sight.page.locator(".versions summary").focus()
    sight.page.keyboard.press("Enter")
    links = sight.page.locator(".versions a")
    links.first.wait_for()
    names = links.all_inner_texts()
    assert links.locator("xpath=self::*[@aria-current]").all_inner_texts() == ["dev"]
    for _ in range(names.index(version) + 1):
        sight.page.keyboard.press("Tab")
    assert sight.focused() == version
    sight.page.keyboard.press("Enter")
    return names


def test_each_page_leads_to_itself_in_other_versions(eyes, two_versions):
    """By keyboard, from a folder without a server; to the start of a version that lacks the page."""
    sight = eyes.look(two_versions / "dev" / "site" / "pictures.html")
    assert choose_version(sight, "0.0.9") == ["0.0.9", "dev"]
    sight.page.wait_for_url("**/0.0.9/site/pictures.html")
    assert (
        sight.page.locator(".versions summary").inner_text() == "Version dev"
    )  # a copy has the name of its original
    assert sight.page.locator(".versions a[aria-current]").all_text_contents() == ["0.0.9"]
    sight.assert_no_complaints()
    sight = eyes.look(two_versions / "dev" / "site" / "gallery.html")
    choose_version(sight, "0.0.9")
    sight.page.wait_for_url("**/0.0.9/index.html")
    sight.assert_no_complaints()


def test_the_root_leads_to_the_newest_release_on_a_static_host(eyes, two_versions, static_host):
    """Below any address; GitHub Pages leaves nothing out; programs read the versions as JSON."""
    sight = eyes.look(f"{static_host}/below/an%20address/")
    sight.page.wait_for_url("**/0.0.9/index.html")
    links = sight.page.locator(".versions a").all_text_contents()
    assert links == ["0.0.9", "dev"]
    sight.assert_no_complaints()
    assert (two_versions / ".nojekyll").exists()
    listed = json.loads((two_versions / "versions.json").read_text())
    assert [one["version"] for one in listed] == links
    assert "site/gallery.html" in listed[1]["pages"]
    assert "site/gallery.html" not in listed[0]["pages"]


@pytest.fixture
def static_host(two_versions):
    """Return the address of a server that knows files and nothing else."""
    handler = partial(SilentHandler, directory=two_versions.parents[1])
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(END_S)


class SilentHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Print nothing."""


def test_releases_are_the_tags_of_versions(tmp_path):
    """Annotated or not, each with its commit; other tags are none. Outside of a clone there are none."""
    assert versions.releases(tmp_path) == {}
    git = ("git", "-C", tmp_path, "-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (
        ("init", "--quiet"),
        ("commit", "--quiet", "--allow-empty", "-m", "one"),
        ("tag", "v0.1.0"),
        ("tag", "v0.2.0rc1"),
        ("commit", "--quiet", "--allow-empty", "-m", "two"),
        ("tag", "-a", "-m", "two", "v0.10.0"),
        ("tag", "very-good"),
    ):
        subprocess.run([*git, *words], check=True, timeout=END_S)
    done = subprocess.run([*git, "rev-list", "HEAD"], check=True, timeout=END_S, capture_output=True, text=True)
    two, one = done.stdout.split()
    assert versions.releases(tmp_path) == {"0.1.0": one, "0.10.0": two}
    for name in ("0.1.0", "0.10.0", "dev", "_static"):
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "index.html").touch()
    assert [each["version"] for each in versions.versions(tmp_path / "site")] == ["0.10.0", "0.1.0", "dev"]


@pytest.mark.slow
@pytest.mark.timeout(SLOW_TEST_S)
def test_a_release_is_built_once_by_its_own_program(tmp_path):
    """From the files of its tag alone; its pages say which version they are of, and all links lead somewhere."""
    clone, out = tmp_path / "clone", tmp_path / "site"
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, clone], check=True, timeout=LONG_END_S)
    subprocess.run(["git", "-C", clone, "tag", "v0.0.9"], check=True, timeout=END_S)
    build = [sys.executable, clone / "docs" / "_ext" / "versions.py", out]
    environment = {**os.environ, "PYTHONPATH": str(clone)}
    subprocess.run(build, check=True, timeout=SLOW_BUILD_S, env=environment)
    assert "Version 0.0.9" in (out / "0.0.9" / "index.html").read_text()
    assert "Version dev" in (out / "dev" / "index.html").read_text()
    assert faults(out) == []
    first = (out / "0.0.9" / "index.html").stat().st_mtime_ns
    subprocess.run(build, check=True, timeout=SLOW_BUILD_S, env=environment)
    assert (out / "0.0.9" / "index.html").stat().st_mtime_ns == first


def test_the_gallery_has_every_recorded_run_with_all_its_files(eyes, site):
    """A section for each run, with links to the stats file itself, its scenario, and reports by the program."""
    links = read(site / "site" / "gallery.html").links
    runs = sorted(path.name.removesuffix(".stats.gz") for path in (ROOT / "docs" / "data").glob("*.stats.gz"))
    assert len(runs) >= 6
    for run in runs:
        assert [link for link in links if link.startswith(f"../examples/{run}.")] == [
            f"../examples/{run}.{suffix}" for suffix in ("html", "txt", "stats.gz", "yaml")
        ]
        original = ROOT / "docs" / "data" / f"{run}.stats.gz"
        assert (site / "examples" / original.name).read_bytes() == original.read_bytes()
        stats = StatsFile(original)
        assert (site / "examples" / f"{run}.yaml").read_text("utf-8") == stats.header["scenario"]["text"]
    printed = io.StringIO()
    TextReport().write(ReportSource(StatsFile(ROOT / "docs" / "data" / "weigh.stats.gz"), detail="full"), printed)
    assert (site / "examples" / "weigh.txt").read_text("utf-8") == printed.getvalue()
    sight = eyes.look(site / "site" / "gallery.html")
    sight.page.locator(".versions summary").click()
    sight.assert_accessible()
    sight.assert_no_sideways_scroll()
    assert sight.page.locator("section section").count() == len(runs)


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
    assert "lifecycle" in sight.page.title()
    assert sight.page.locator("svg").count() > 4
