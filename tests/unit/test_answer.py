"""The answer: one sentence for the verdicts of a run, the same in every format."""

import io
import json
from html import unescape
from xml.etree import ElementTree as ET

import pytest
from builders import write_report
from rounds import A, B, Rounds
from test_compare_runs import archive, compare

import weighbridge
from bench_common.stats.reader import StatsFile
from bench_master.analysis.answer import make_answer
from bench_master.analysis.document import build_document
from bench_master.analysis.verdict_types import ArchiveReport

SENTENCE = "Faster than docker: native (80.0 times). Slower: podman (+5.6 %). Same within 3 %: crun."


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A recorded run with three words."""
    path = tmp_path_factory.mktemp("answer") / "run.stats.gz"
    rounds = Rounds(path, ("docker", "podman", "native", "crun"))
    rounds.write(A, B, [each / 80 for each in A], A)
    return path


def report(path, name):
    out = io.StringIO()
    write_report(path, out, name, detail="page")
    return out.getvalue()


def text_of(page):
    """Return a page without line ends and without what protects characters from being markup."""
    return " ".join(unescape(page).replace("\\", "").split())


@pytest.mark.parametrize("name", ["text", "html", "github", "markdown"])
def test_pages_for_people_have_the_sentence_of_the_json_report(run, name):
    """Whoever quotes the answer quotes the same one."""
    answer = json.loads(report(run, "json"))["verdicts"]["answer"]
    assert answer == SENTENCE
    assert answer in text_of(report(run, name))


def test_programs_read_the_same_sentence(run):
    """JUnit has it among the properties of the suite, and a notebook shows it."""
    properties = {one.get("name"): one.get("value") for one in ET.fromstring(report(run, "junit")).iter("property")}
    assert properties["answer"] == SENTENCE
    assert SENTENCE in unescape(weighbridge.load(run)._repr_html_())
    assert build_document(StatsFile(run)).verdicts.answer == SENTENCE


@pytest.mark.parametrize("format_", ["text", "json", "markdown"])
def test_comparisons_of_runs_have_their_answer(tmp_path, capsys, format_):
    """Also in each of their formats."""
    new = archive(tmp_path / "runs", [100, 100.5, 99.5, 100.2, 99.8, 110])[-1]
    out = compare(capsys, "--format", format_, tmp_path / "runs", new).out
    assert "Slower than earlier runs: engine=docker (" in text_of(out)


def test_without_comparisons_the_history_is_the_answer():
    """Or that there is nothing to compare."""
    runs = ArchiveReport(runs=12, sd=None, low=None, high=None)
    assert make_answer([], 0.03, {}, runs) == "No change in 12 runs."
    assert make_answer([], 0.03, {}).startswith("Refused: no treatment of the new run is in an earlier one")
