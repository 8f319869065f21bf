"""The HTML report: one file that loads nothing, in which no text of a run is markup."""

import base64
import hashlib
import io
import re
from html.parser import HTMLParser

import pytest
from builders import footer, lifecycle_run
from msgspec.structs import replace

from bench_common.stats.reader import StatsFile
from bench_master.reports import ReportSource
from bench_master.reports.html import HtmlReport

VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Reads a page: its elements with their attributes, the text of styles and scripts, and whether tags match."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.inside = [], [], {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in set(self.open):
            self.inside[tag] = self.inside.get(tag, "") + data

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]


def written(source):
    out = io.StringIO()
    HtmlReport().write(source, out)
    return out.getvalue()


@pytest.fixture
def source(tmp_path):
    return ReportSource(StatsFile(lifecycle_run(tmp_path / "run.stats.gz")))


def test_the_page_loads_nothing_and_allows_only_its_own_style_and_script(source):
    """No address but the namespace of SVG, and a policy that forbids all but two texts by their checksums."""
    text = written(source)
    page = Page(text)
    assert set(re.findall(r"https?://[^\"'\s<]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not {tag for tag, _ in page.elements} & {"img", "iframe", "object", "embed", "form", "base"}
    assert [attrs["href"] for attrs in page.all("link")] == ["data:,"]
    assert all(attrs["href"].startswith("#") for attrs in page.all("a"))
    assert not [
        attrs for _, attrs in page.elements if "style" in attrs or any(name.startswith("on") for name in attrs)
    ]
    (policy,) = [each["content"] for each in page.all("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        assert len(page.all(tag)) == 1
        checksum = base64.b64encode(hashlib.sha256(page.inside[tag].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{checksum}'" in policy


def test_verdicts_come_before_warnings_charts_and_tables(source):
    """What a reader wants to know is at the top; everything has its place in the contents."""
    text = written(source)
    places = [text.index(mark) for mark in ('class="answer"', "<nav", 'id="trials"', 'id="tables"', 'id="again"')]
    assert places == sorted(places)
    page = Page(text)
    targets = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    assert {attrs["href"][1:] for attrs in page.all("a")} <= targets
    identifiers = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(identifiers) == len(set(identifiers))
    assert "The run is complete." in text


def test_a_remark_of_the_run_is_on_the_page(tmp_path):
    """Such as that somebody watched it, or how it was ended."""
    path = lifecycle_run(tmp_path / "run.stats.gz", foot=footer(remarks=["watched <b>during</b> trials 4-9"]))
    text = written(ReportSource(StatsFile(path)))
    assert "<li>Watched &lt;b&gt;during&lt;/b&gt; trials 4-9.</li>" in text


def test_each_chart_is_there_at_two_widths_with_a_title_for_readers(source):
    """A wide and a narrow picture of each, both named and described."""
    page = Page(written(source))
    classes = [attrs["class"] for attrs in page.all("svg")]
    assert classes == ["wide", "narrow"] * (len(classes) // 2)
    assert len(classes) >= 2 * 3
    identifiers = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    for attrs in page.all("svg"):
        assert attrs["role"] == "img"
        assert set(attrs["aria-labelledby"].split()) <= identifiers


@pytest.mark.parametrize(
    "words",
    [
        "<script>alert(1)</script>",
        "]]>--></style></script>",
        "\u202egnp.exe",
        "w" * 10_000,
        "\" onload='x' ",
        "{{ 7*7 }}",
    ],
)
def test_no_text_of_a_run_is_markup(source, words):
    """Names, messages and command lines are text, whatever is in them."""
    plain = Page(written(source))
    document = source.document
    source.__dict__["document"] = replace(
        document,
        scenario=replace(document.scenario, name=words, description=words),
        run=replace(document.run, argv=["bench-master", words], run_id=words),
        hosts=[
            replace(each, host=words, engines={words: words}, fingerprint={words: words}) for each in document.hosts
        ],
        warnings=[words],
        treatments=[replace(each, title=words) for each in document.treatments],
        stats_file=words,
    )
    text = written(source)
    page = Page(text)
    assert [tag for tag, _ in page.elements if tag in ("script", "style")] == ["style", "script"]
    assert not [attrs for _, attrs in page.elements if any(name.startswith("on") for name in attrs)]
    assert page.inside["script"] == plain.inside["script"]
    assert "\u202e" not in text
    assert ">49<" not in text
    assert len(text) < 300_000
