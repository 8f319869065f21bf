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
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import terminal_recording
import versions
from check_site import faults, read
from deadlines import BUILD_S, END_S, LONG_END_S, LONG_TEST_S, SLOW_BUILD_S, SLOW_TEST_S
from documents import ROOT
from eyes import NARROW, WIDE

from bench_common.stats.reader import StatsFile
from bench_master.reports import ReportSource
from bench_master.reports.text import TextReport

pytestmark = pytest.mark.timeout(LONG_TEST_S)

NEEDED = ("README.rst", "CONTRIBUTING.rst", "CHANGELOG.rst", "LICENSE", "benchmarks/README.rst")
PAGES = (
    "README.html",
    "docs/index.html",
    "docs/reference/commands.html",
    "docs/scenarios.html",
    "docs/site/pictures.html",
    "docs/site/python.html",
    "docs/tutorial.html",
)
"""Each kind of page."""


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


def test_the_python_interface_is_there(site):
    """Each public method of `weighbridge.Results`, the function that makes one, and what extensions subclass."""
    import weighbridge

    ids = read(site / "docs" / "site" / "python.html").ids
    methods = [f"weighbridge.Results.{name}" for name in vars(weighbridge.Results) if not name.startswith("_")]
    assert {"weighbridge.load", "weighbridge.Results", *methods} <= ids
    bases = {
        "bench_workloads.base.Workload",
        "bench_worker.engines.base.Engine",
        "bench_features.objects.worker.base.Store",
    }
    assert {*bases, "bench_master.reports.Report"} <= ids


@pytest.mark.parametrize("width", [pytest.param(WIDE, marks=pytest.mark.slow), NARROW])
def test_its_main_pages_are_clean_in_a_browser(eyes, site, width):
    """No complaint, nothing from elsewhere, no sideways scroll."""
    for name in PAGES:
        sight = eyes.look(site / name, width=width, dark=width == NARROW)
        sight.assert_no_complaints()
        assert [url for url in sight.requests if not url.startswith(("file:", "data:"))] == []
        sight.assert_no_sideways_scroll()


def test_the_start_page_has_a_report_an_install_line_and_four_doors(eyes, site):
    """The report is what the program prints of the recorded run; each door has a command and leads to a page."""
    printed = io.StringIO()
    source = ReportSource(StatsFile(ROOT / "docs" / "data" / "weigh.stats.gz"))
    TextReport().write(source, printed)
    page = eyes.look(site / "docs" / "index.html").page
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
    text = html.unescape(re.sub(r"<[^>]+>", "", (site / "docs" / "index.html").read_text("utf-8")))
    assert screen in text
    assert "data/first-run.cast" in read(site / "docs" / "index.html").links


@pytest.fixture(scope="module")
def two_versions(site, tmp_path_factory):
    """Return a site that has a release, too."""
    root = tmp_path_factory.mktemp("versions") / "below" / "an address"
    for name in ("dev", "0.0.9"):
        shutil.copytree(site, root / name, copy_function=os.link)
    versions.write_start(root)
    (root.parents[1] / "favicon.ico").touch()  # browsers ask each host for one
    return root


def test_the_root_leads_to_the_newest_release_on_a_static_host(eyes, two_versions, static_host):
    """Below any address, and each page to the list of versions; GitHub Pages leaves nothing out."""
    sight = eyes.look(f"{static_host}/below/an%20address/")
    sight.page.wait_for_url("**/0.0.9/docs/index.html")
    sight.assert_no_complaints()
    sight.page.get_by_role("link", name="Version dev").click()  # a copy has the name of its original
    sight.page.wait_for_url("**/versions.html")
    assert sight.page.locator("meta[name=viewport]").count() == 1  # else a telephone shows it as a desk would
    assert sight.page.locator("li a").all_text_contents() == ["0.0.9", "dev"]
    sight.page.get_by_role("link", name="dev").click()
    sight.page.wait_for_url("**/dev/docs/index.html")
    assert (two_versions / ".nojekyll").exists()


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
        (tmp_path / "site" / name / "docs").mkdir(parents=True)
        (tmp_path / "site" / name / "docs" / "index.html").touch()
    assert versions.versions(tmp_path / "site") == ["0.10.0", "0.1.0", "dev"]


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
    assert "Version 0.0.9" in (out / "0.0.9" / "docs" / "index.html").read_text()
    assert "Version dev" in (out / "dev" / "docs" / "index.html").read_text()
    assert faults(out) == []
    first = (out / "0.0.9" / "docs" / "index.html").stat().st_mtime_ns
    subprocess.run(build, check=True, timeout=SLOW_BUILD_S, env=environment)
    assert (out / "0.0.9" / "docs" / "index.html").stat().st_mtime_ns == first


def test_every_recorded_run_has_all_its_files(site):
    """The page of pictures links to the stats file itself, its scenario, and reports by the program."""
    links = read(site / "docs" / "site" / "pictures.html").links
    runs = sorted(path.name.removesuffix(".stats.gz") for path in (ROOT / "docs" / "data").glob("*.stats.gz"))
    assert len(runs) >= 5
    for run in runs:
        assert {f"../data/{run}.{suffix}" for suffix in ("html", "txt", "stats.gz", "yaml")} <= {*links}
        original = ROOT / "docs" / "data" / f"{run}.stats.gz"
        assert (site / "docs" / "data" / original.name).read_bytes() == original.read_bytes()
        stats = StatsFile(original)
        assert (site / "docs" / "data" / f"{run}.yaml").read_text("utf-8") == stats.header.scenario.text
    printed = io.StringIO()
    TextReport().write(ReportSource(StatsFile(ROOT / "docs" / "data" / "weigh.stats.gz"), detail="full"), printed)
    assert (site / "docs" / "data" / "weigh.txt").read_text("utf-8") == printed.getvalue()


def test_search_needs_no_server(eyes, site):
    """Typed into a page that was opened from a folder, an option and a key lead to their documents."""
    for words, place in (("--rerun-baseline", "reference/commands.html"), ("queue_timeout", "scenario-keys.html")):
        sight = eyes.look(site / "docs" / "index.html")
        sight.page.get_by_role("textbox", name="Search").fill(words)
        sight.page.keyboard.press("Enter")
        sight.page.wait_for_selector("#search-results li a")
        links = sight.page.eval_on_selector_all("#search-results li a", "all => all.map(each => each.href)")
        assert any(place in link for link in links), json.dumps(links[:5])
        sight.assert_no_complaints()


def test_the_example_page_and_the_pictures_are_those_of_a_real_run(eyes, site):
    """The report of the quickstart opens from the site; each picture is described, and large enough to be read."""
    for screen in (NARROW, WIDE):
        sight = eyes.look(site / "docs" / "site" / "pictures.html", width=screen)
        shown = sight.page.eval_on_selector_all(
            "img.picture",
            "all => all.filter(each => each.checkVisibility())"
            ".map(each => [each.alt.length, each.complete, each.width / each.naturalWidth])",
        )
        assert len(shown) >= 6
        assert all(described > 40 and complete and scale > 0.95 for described, complete, scale in shown), shown
    sight.page.locator("a[href='../data/quickstart.html']").click()
    sight.page.wait_for_url("**/data/quickstart.html")
    assert "lifecycle" in sight.page.title()
    assert sight.page.locator("svg").count() > 4
