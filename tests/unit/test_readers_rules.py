"""What first pages of recorded runs keep in every format, for readers who know neither the program nor statistics."""

import html
import io
import json
import re
from functools import cache

import goldens
import pytest
from places import ROOT

from bench_common.stats.reader import StatsFile
from bench_features.formats.github import GithubReport
from bench_master.analysis.report_types import as_json
from bench_master.formatting import DEFAULT_WIDTH
from bench_master.reports import ReportSource
from bench_master.reports.html import HtmlReport
from bench_master.reports.markdown import MarkdownReport
from bench_master.reports.side_by_side import side_tables
from bench_master.reports.text import TextReport, lines

LATE_ENDS = "timing error (p99) is more"
PRIVATE = (
    "(seed ",
    "checks passed",
    "passed  ",
    LATE_ENDS,
    "rounds cancel",
    "hold together",
    "regimes",
    "carry-over",
)
"""What belongs under -v, and what no reader needs."""
RAW = re.compile(r"\b(?:None|nan|inf|True|False)\b|[A-Z]\w+\(\w+=|\{'|<\w+\.\w+ object")
"""What Python prints of a value that has no words."""
FORMATS = {"text": TextReport, "markdown": MarkdownReport, "github": GithubReport, "html": HtmlReport}
MOST_TRUST = 20


@cache
def source_of(run):
    return ReportSource(StatsFile(goldens.RECORDED[run]))


# A damaged file and another tool's results have words of their own.
@pytest.fixture(params=sorted(set(goldens.RECORDED) - {"damaged", "imported"}))
def run(request):
    return request.param


def written(run, name):
    """Return what a format has of a run, of the page its first screen; as text."""
    out = io.StringIO()
    FORMATS[name]().write(source_of(run), out)
    text = out.getvalue()
    if name == "html":
        text = text[text.index("<body") : text.index('<nav aria-label="Contents"')]
    return html.unescape(re.sub(r"<[^>]*>", " ", text)).replace("\\", "")


def flat(text):
    return " ".join(re.sub(r"[*`\\]", "", text).split())


def plain_words(text):
    """Return the words of three letters and more, without those of which ids consist."""
    return set(re.findall(r"[a-z]{3,}", re.sub(r"\b[0-9a-f]{6,}\b", "", text).lower()))


@pytest.mark.parametrize("name", FORMATS)
def test_no_private_word_no_bare_dash_and_one_way_of_saying_a_ratio(run, name):
    """What was run, the answer and its trust are the same in every format."""
    text, document = written(run, name), source_of(run).document
    # That ends may be late is said where no interval allows for it.
    private = [word for word in PRIVATE if document.verdicts is not None or word != LATE_ENDS]
    assert [word for word in private if word in text] == []
    assert not re.search(r"\| +- +\||^ +- *$|  -(?:  |$)", text, re.MULTILINE)
    assert not re.search(r"\u00d7|\b0\.\d+x|\d\.\d+ times|\bfold\b", text)
    assert not RAW.search(text.partition("Run again")[0])
    for part in (document.scenario.subject or str(document.scenario.name), document.trust.sentence):
        assert flat(part) in flat(text)
    if document.verdicts is not None:
        assert flat(document.verdicts.answer) in flat(text)


def test_the_page_fits_a_terminal_and_its_words_are_allowed(run):
    """Each word is in first-page-words.txt, or the run brought it with it."""
    document = source_of(run).document
    page = list(lines(document))
    assert [line for line in page if len(line) > DEFAULT_WIDTH] == []
    found = as_json(document)
    own = [found[name] for name in ("stats_file", "scenario", "errors", "thresholds", "published", "traced")]
    own += [host["findings"] for host in found["hosts"]]
    for entry in found["treatments"]:
        own += [entry[name] for name in ("treatment", "title", "disturbances", "packing")]
        own += [list(entry["operations"]), list(entry["metrics"])]
    allowed = set((ROOT / "tests" / "data" / "first-page-words.txt").read_text("utf-8").split())
    assert plain_words("\n".join(page)) - plain_words(json.dumps(own)) - allowed == set()


def test_what_treatments_are_compared_by_has_one_value(run):
    """That of the table of verdicts: side by side stand other measures, also with -v; tables of all jobs say so."""
    document = source_of(run).document
    judged = {each.measure for each in document.verdicts.comparisons} if document.verdicts is not None else set()
    for full in (False, True):
        measures = {row[0].replace(" ", ".") for table in side_tables(document, full=full) for row in table.texts}
        assert not judged & (measures - {"MB/s"})
    assert "job.p50" not in judged or "the middle of the trials." in flat("\n".join(lines(document, full=True)))


def test_signs_are_told_and_the_only_treatment_has_each_time_once(run):
    """A question mark has its meaning below the table; the row of the whole job is no column, too."""
    page = "\n".join(lines(source_of(run).document))
    assert bool(re.search(r"\d [mun]?s\?", page)) == ("?: a p99 of fewer" in page)
    assert not (re.search("^  job  ", page, re.MULTILINE) and "  job p50" in page.partition("Side by side")[0])


def test_a_drift_of_the_host_is_told_once():
    """Its treatments drift with it: that stands beside their values, and with -v."""
    document = source_of("drift").document
    page, full = ("\n".join(lines(document, full=full)) for full in (False, True))
    assert ("no single number" in page, full.count("no single number")) == (False, 2)
    assert "188 to 440 ms, drifted" in page


def test_trust_takes_few_lines(run):
    """From the line of trust to the next section."""
    page = list(lines(source_of(run).document))
    begin = next(place for place, line in enumerate(page) if line.lstrip().startswith("Trust:"))
    rest = page[begin:]
    end = next((place for place, line in enumerate(rest) if line.startswith("---")), len(rest))
    assert end <= MOST_TRUST
