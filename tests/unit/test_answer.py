"""The answer: one sentence for the verdicts of a run, the same in every format."""

import io
import json
from html import unescape
from xml.etree import ElementTree as ET

import pytest
from builders import write_report
from levelled_runs import archive, compare
from msgspec.structs import replace
from places import DATA
from rounds import A, B, Rounds
from verdict_builders import answer_of, comparison

import weighbridge
from bench_common.cost import CHANGE_WORDS, COST_UNITS, CPU_FREQUENCY, HELD_UNITS
from bench_common.stats.block_types import StoredMetric
from bench_common.stats.reader import StatsFile
from bench_common.thresholds import parse_primary
from bench_master.analysis.document import build_document
from bench_master.analysis.verdict_makers import words_of
from bench_master.analysis.verdict_types import ArchiveReport
from bench_master.reports import ReportSource, report_named
from bench_master.reports.values_text import value_sentences
from bench_master.verdicts.reasons import Code, because

SENTENCE = (
    "Faster than docker (1.02 s): native (12.7 ms, 80.0x as fast). Slower: podman (1.06 s, +5.6 %). "
    "Same within 3 %: crun (1.02 s)."
)


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
    assert "Slower than earlier runs (99.8 ms): engine=docker (110 ms" in text_of(out)


def test_without_comparisons_the_history_is_the_answer():
    """Or that there is nothing to compare."""
    runs = ArchiveReport(runs=12, sd=None, low=None, high=None)
    assert answer_of([], runs) == "No change in 12 runs."
    few = "No change can be found in 5 runs: the newest is held against 5 before it."
    assert answer_of([], replace(runs, runs=5)) == few
    assert answer_of([]).startswith("Refused: no treatment of the new run is in an earlier one")


def test_a_side_whose_jobs_failed_is_no_open_question():
    """The answer begins with it, also where it is the baseline; failures beside values come last."""
    dead = {"rounds": 0, "lost": 4, "b_value": None}
    bad = comparison("bad", "inconclusive", None, None, None, b_failure="4 of 4 jobs: no such file", **dead)
    crun = comparison("crun", "faster", 0.5, 0.4, 0.6)
    assert bad.word == "FAILED"
    assert answer_of([bad, crun]) == (
        "Failed against docker (307 ms): bad (4 of 4 jobs: no such file). Faster: crun (154 ms, 2.00x as fast)."
    )
    lost = comparison(
        "crun", "inconclusive", None, None, None, rounds=0, a_value=None, b_value=0.1, a_failure="4 of 4 jobs: gone"
    )
    assert answer_of([lost]) == "Failed: the baseline docker (4 of 4 jobs: gone). Inconclusive: crun (100 ms)."
    partly = comparison("crun", "inconclusive", 1.1, 0.9, 1.3, b_failure="1 of 30 jobs: timeout")
    assert answer_of([partly]).endswith("crun (338 ms). Jobs failed: crun (1 of 30 jobs: timeout).")


@pytest.mark.parametrize(
    ("measure", "unit", "ratio", "sentence"),
    [
        ("cpu_total", "s", 0.5, "Uses less CPU time than docker (307 ms): crun (154 ms, 2.00x less)."),
        ("cpu_total", "s", 3.0, "Uses more CPU time than docker (307 ms): crun (921 ms, 3.00x as much)."),
        ("memory_peak", "B", 0.9, "Uses less memory than docker (307 B): crun (276 B, -10.0 %)."),
    ],
)
def test_who_uses_less_is_not_called_faster(measure, unit, ratio, sentence):
    """CPU time and memory are costs: the answer says of what there is less, or more."""
    a = 0.307 if unit == "s" else 307.0
    word = "better" if ratio < 1 else "worse"
    one = comparison("crun", word, ratio, ratio, ratio, measure=measure, unit=unit, a_value=a, b_value=a * ratio)
    assert answer_of([one]) == sentence
    assert words_of(parse_primary(measure, ["start"], {measure: StoredMetric(unit)})) == ("worse", "better")


def test_every_cost_has_its_words():
    """One without is called faster where it is a time. Only of the frequency more is better, and it is no cost."""
    assert CHANGE_WORDS.keys() == {*COST_UNITS, *HELD_UNITS} - {CPU_FREQUENCY}


def test_one_run_against_one_is_weak_evidence_unless_more_differs():
    """With both values, the difference and its interval; runs on other kernels stay refused: no more runs help."""
    alike = comparison("crun", "refused", 1.1, 1.05, 1.2, reasons=(because(Code.ONE_RUN_EACH, properties=[]),))
    other = comparison("runc", "refused", 1.2, 1.1, 1.3, reasons=(because(Code.ONE_RUN_EACH, properties=["kernel"]),))
    assert answer_of([alike, other]) == (
        "Weak evidence against docker, no verdict: crun (338 ms against 307 ms, +10.0 % [+5.0, +20.0]). "
        "Refused: runc (368 ms)."
    )


def test_a_run_of_which_jobs_failed_begins_with_that():
    """For GitHub and JUnit, too; a treatment that failed has no figure but its failure, also where it is alone."""
    failed = ReportSource(StatsFile(DATA / "pages" / "failed.stats.gz"))
    for name in ("github", "junit"):
        out = io.StringIO()
        report_named(name).write(failed, out)
        assert "4 of 4 jobs" in out.getvalue(), name
    bad = replace(failed.document, treatments=failed.document.treatments[1:], verdicts=None)
    assert value_sentences(bad) == ["failed: 4 of 4 jobs: run: exit code 1 of 'false'."]
