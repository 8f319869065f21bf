"""The first page of the text report: verdicts in words and numbers that a person reads at a glance."""

from pathlib import Path

import pytest
from builders import MS, StatsBuilder, footer, header, host, treatment_wire
from msgspec.structs import replace
from verdict_builders import comparison, engine_verdicts, flag, refused_verdicts, said

from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import build_document
from bench_master.analysis.trust import judge_trust
from bench_master.analysis.verdict_types import (
    BandReport,
    FamilyReport,
    GateReport,
    StoppingReport,
    interval_text,
    range_text,
)
from bench_master.formatting import DEFAULT_WIDTH
from bench_master.reports.text import PAGE, brief_lines, lines
from bench_master.reports.verdict_text import trust_sentences, verdict_tables
from bench_master.verdicts.reasons import Code, because

MEMORY = Path(__file__).parents[1] / "data" / "pages" / "memory.stats.gz"
ENGINES = ("docker", "podman", "crun", "native", "runsc")


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """The document of a run of five engines, without verdicts."""
    names = ("create", "start", "remove")
    treatments = [
        treatment_wire(place, {"environment": "local", "engine": engine, "job": "lifecycle"}, names)
        for place, engine in enumerate(ENGINES)
    ]
    path = tmp_path_factory.mktemp("engines") / "run.stats.gz"
    builder = StatsBuilder(path, header(treatments, [(place, 0, False) for place in range(5)]))
    builder.add("host", host(0))
    for place in range(5):
        builder.add_jobs({"ticket": place, "treatment": place, "trial": place, "end_ns": 300 * MS})
        ours = {"ticket": place, "treatment": place, "trial": place}
        builder.add_operations(*(ours | {"operation": at, "duration_ns": 10 * MS * (at + 1)} for at in range(3)))
    return build_document(StatsFile(builder.close(footer(counts={"done": 5, "planned": 5}))))


def judged(document, verdicts):
    """Return a document with other verdicts, and the trust that follows from them."""
    changed = replace(document, verdicts=verdicts)
    return replace(changed, trust=judge_trust(changed))


def page(document, verdicts, *, full=False):
    return "".join(f"{line}\n" for line in lines(judged(document, verdicts), full=full))


def test_the_first_page_fits_a_screen_whatever_was_found(document):
    """Many flags and gates leave no room for more tables; only the remark of each verdict may lengthen the page."""
    flags = tuple(flag(f"strange thing number {number} happened", where="podman") for number in range(30))
    verdicts = engine_verdicts()
    verdicts = replace(verdicts, runs=replace(verdicts.runs, flags=flags))
    text = page(document, verdicts)
    assert len(text.splitlines()) <= PAGE
    assert "! 26 more with -v" in text
    assert "side by side, each treatment" in text
    assert "strange thing number 29" in page(document, verdicts, full=True)
    assert max(map(len, text.splitlines())) <= DEFAULT_WIDTH


def test_a_refusal_says_why_and_what_would_explain_it(document):
    """A refused comparison has its number, the reason, the tipping point, and no claim of an interval that holds."""
    text = " ".join(page(document, refused_verdicts()).split())
    assert "REFUSED 1,728/s -13.6 % [-13.61, -13.59]" in text
    assert "besides the treatment (cpu_governor ...). A shift of 13.6 % would explain it all." in text
    assert "together" not in text
    assert "! 1 property differs besides the treatment: cpu_governor" in text
    assert 'UNDECIDED --fail-on "slower by 5%": refused: it cannot be judged' in text
    full = " ".join(page(document, refused_verdicts(), full=True).split())
    assert "- cpu_governor differs (refusal): bare-metal: performance; hypervisor: powersave" in full


def test_the_clock_is_told_where_it_is_much_of_an_interval(document):
    """From a tenth of its width on, where there is no verdict: else it changes no word."""
    much = "how the clock was read makes 49 % of the interval's width"
    for word, low, high in (("inconclusive", 1.2, 1.2294), ("inconclusive", 1.184, 1.237), ("slower", 1.2, 1.2294)):
        one = comparison("podman", word, 1.21, 1.182, 1.239, band=BandReport(low, high, "clock"))
        page_text = " ".join(page(document, engine_verdicts(comparisons=[one])).split())
        assert (much in page_text) == ((word, low) == ("inconclusive", 1.2))
        assert ("the clock" in page_text) == (much in page_text)


def test_a_difference_that_is_not_the_quotient_of_the_values_is_explained(document):
    """A reader who divides 307 ms by 3.67 ms gets another number than the middle of the rounds' ratios."""
    one = comparison("native", "faster", 1 / 79.6, 1 / 83.0, 1 / 76.1)
    for value, said_so in ((one.b_value, False), (0.00367, True)):
        found = engine_verdicts(comparisons=[replace(one, b_value=value)])
        text = " ".join(page(document, found).split())
        assert ("the middle of the rounds' ratios, not the quotient of two values." in text) == said_so


def test_a_reason_that_all_share_is_said_once(document):
    """Four refusals with one reason have it under the table, not under each row; the trust is poor for the same."""
    found = [
        replace(each, verdict="refused", reasons=[said("not interleaved")]) for each in engine_verdicts().comparisons
    ]
    text = page(document, engine_verdicts(comparisons=found))
    assert text.count("not interleaved") == 2
    assert f"Trust: poor, {said('not interleaved').sentence()}" in " ".join(text.split())


def test_groups_that_are_too_wide_for_one_table_have_one_each(document):
    """Each row stays on a line; what limits several treatments is said once for all of them."""
    own = {"environment": "local", "job": "a-job-of-a-long-name"}
    sizes = ("storage=tmpfs-on-a-disk", "storage=volume-on-a-disk")
    entries = [
        replace(entry, title=f"{engine} {size}", treatment={"engine": engine, **own, "storage": size})
        for entry, engine in zip(document.treatments[:2], ("docker", "podman"), strict=True)
        for size in sizes
    ]
    found = [
        comparison(name, "slower", 1.2, 1.1, 1.3, group=size, a=f"docker {size}",
                   reasons=[said(f"so it is{name == 'crun'}")], labels={"engine": name, **own, "storage": size})
        for size in sizes for name in ("podman", "crun", "containerd")
    ]  # fmt: skip
    several = replace(document, treatments=entries, verdicts=engine_verdicts(comparisons=found))
    first, second = verdict_tables(several)
    assert first.caption == "storage=tmpfs-on-a-disk: job p50"
    assert all(table.fits() for table in (first, second))
    assert first.shared_remarks() == {
        "so it isFalse": ", ".join(row.name for row in first.rows if "False" in row.remark)
    }
    assert page(several, several.verdicts).count("so it isFalse") == 2


def test_what_limits_an_interval_is_said(document):
    """The range of a few rounds, lost rounds, an open end, a difference in the measure's unit."""
    found = [
        comparison("podman", "slower", 2.5, 2.2, 2.9, confidence=0.75, rounds=3, mde=None,
                   reasons=[because(Code.CLEAR_GAP, rounds=3)]),
        comparison("crun", "slower", 300.0, 172.0, None, lost=2),
        comparison("runsc", "slower", 0.0012, 0.001, 0.0015, scale="difference"),
    ]  # fmt: skip
    found.append(comparison("kata", "inconclusive", 1.01, 0.9, 1.1, reasons=[because(Code.NOT_ENOUGH_EVIDENCE)]))
    verdicts = engine_verdicts(comparisons=found)
    stopping = StoppingReport(last=30, look=12, nominal=0.01, why="settled")
    verdicts = replace(verdicts, design=replace(verdicts.design, stopping=stopping))
    verdicts = replace(verdicts, gates=(GateReport("--require-verdict", "passed", "", "each has a word", 0),))
    text = " ".join(page(document, verdicts).split())
    assert "2.50x as slow [2.20, 2.90] 3" in text
    assert "too few for an interval; shown is the range of 3 rounds (75 % confidence)" in text
    assert "300x as slow [172, open] 20 2 rounds lost" in text
    assert "+1.20 ms [+1.00 ms, +1.50 ms]" in text
    assert (
        "nor for equality; a difference of 1.4 % would have been missed in one run of five; no number of rounds "
        "within reach would settle it: lower the noise, or widen the margin" in text
    )
    assert "Stopped after round 12 of at most 30: settled." in text
    gone = [*found, comparison("kata", "inconclusive", None, None, None, rounds=0, b_failure="run: exit code 1")]
    assert "at most 30: settled or failed." in " ".join(page(document, replace(verdicts, comparisons=gone)).split())
    assert "passed --require-verdict: each has a word" in text


def test_many_comparisons_are_cut_at_a_screen(document):
    """A run of hundreds of treatments shows the first rows, how many more there are, and all of them with -v."""
    many = [comparison(f"e{number}", "same", 1.0, 0.99, 1.01) for number in range(300)]
    verdicts = engine_verdicts(comparisons=many)
    text = page(document, verdicts)
    assert "... and 289 more with -v" in text
    assert "and 296 more" in text
    assert "e299" in page(document, verdicts, full=True)
    other = [replace(each, measure="events_per_second", unit="1/s") for each in many[:30]]
    assert "... and 31 in other tables with -v" in page(document, engine_verdicts(comparisons=[*many, *other]))


def test_hostile_names_stay_on_their_line(document):
    """What a scenario calls a treatment can neither steer a terminal nor pass for a line of the report."""
    evil = "x\x1b[2J\nSLOWER y"
    one = comparison(evil, "faster", 0.9, 0.8, 0.95, reasons=[said(evil)], labels={"engine": evil})
    verdicts = engine_verdicts(comparisons=(one,), question=evil)
    for text in (page(document, verdicts), "\n".join(brief_lines(replace(document, verdicts=verdicts)))):
        assert "\x1b" not in text
        assert not any(line.startswith("SLOWER") for line in text.splitlines())


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (comparison("podman", "slower", 1.2, 1.1, 1.3), "[+10.0, +30.0]"),
        (comparison("runsc", "slower", 0.0012, 0.001, 0.0015, scale="difference"), "[+1.00 ms, +1.50 ms]"),
        (comparison("crun", "inconclusive", 1.0, None, None), "-"),
    ],
)
def test_an_interval_reads_alike_wherever_it_stands(given, shown):
    """Reports and comparisons of runs have one rule; a difference has its unit in both."""
    assert interval_text(given) == shown
    assert interval_text(given, given.rounds + 1) == "-"


def test_an_extended_run_says_how_often_such_runs_err(document):
    """The level of its intervals is not rounded to a better one, and the earlier end counts."""
    verdicts = engine_verdicts(family=FamilyReport(0.025, 4, 0.03, "bonferroni-interval", together=0.075))
    extended = replace(document, verdicts=verdicts)
    text = " ".join(trust_sentences(extended))
    assert "97.5 % confidence for all 4 intervals together." in text
    assert "Extended after its end: a word is wrong in at most 7.5 % of such runs with the earlier ends." in text
    assert any(column.title == "97.5 % interval" for column in verdict_tables(extended)[0].columns)


def test_labels_that_do_not_fit_are_one_column():
    """A name of its own for each row, and the same verdicts."""
    [table] = verdict_tables(build_document(StatsFile(MEMORY)))
    merged = table.merged()
    assert [column.title for column in merged.columns[:2]] == ["treatment", "verdict"]
    assert merged.rows[0].cells == ["docker write 1", *table.rows[0].cells[3:]]
    assert [row.name for row in merged.rows] == [row.name for row in table.rows]


@pytest.mark.parametrize(
    ("ends", "unit", "text"),
    [
        ((0.188, 0.44), "s", "188 to 440 ms"),
        ((0.44, 1.2), "s", "440 ms to 1.20 s"),
        ((1052.0, 3466.0), "1/s", "1,052 to 3,466/s"),
        ((5.0, 6.0), "", "5 to 6"),
    ],
)
def test_a_range_has_its_unit_once(ends, unit, text):
    """Where both ends have the same one."""
    assert range_text(*ends, unit) == text
