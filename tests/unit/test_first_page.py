"""The rules of the first page, held by the page of every recorded run."""

import html
import io
import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from deadlines import END_S
from msgspec.structs import replace

from bench_common.stats.reader import StatsFile
from bench_features.formats.github import GithubReport
from bench_features.formats.junit import JunitReport
from bench_features.live.live_verdict import answer_of
from bench_master.analysis.document import build_document
from bench_master.analysis.report_types import as_json
from bench_master.formatting import DEFAULT_WIDTH
from bench_master.reports import ReportSource
from bench_master.reports.html import HtmlReport
from bench_master.reports.markdown import MarkdownReport
from bench_master.reports.side_by_side import side_tables
from bench_master.reports.text import TextReport, brief_lines, lines
from bench_master.reports.values_text import only_value, value_sentences

ROOT = Path(__file__).parents[2]
SHOWN = sorted((ROOT / "docs" / "data").glob("*.stats.gz"))
"""The runs that the documents show."""
SMALL = sorted((ROOT / "tests" / "data" / "pages").glob("*.stats.gz"))
"""One of each kind, with the fewest jobs; ``script/record-pages`` made them."""
RECORDED = SHOWN + SMALL
MOST_TRUST, MOST_DISTURBED = 12, 20
"""Lines between the table and what the run was: of runs that documents show, and of those on a very busy machine."""
LATE_ENDS = "timing error (p99) is more"
PRIVATE = (
    "(seed ",
    "checks passed",
    "passed  ",
    "and run again",
    LATE_ENDS,
    "rounds cancel",
    "hold together",
    "regimes",
    "carry-over",
    "neighbours alike",
)
"""What belongs under -v, and what nobody is told."""


PACKING = next(path for path in SHOWN if "packing" in path.name)
INTERRUPTED = next(path for path in SMALL if "interrupted" in path.name)
BOUND = 1_000_000
"""Bytes that the recorded runs may take together in the repository."""
RAW = re.compile(r"\b(?:None|nan|inf|True|False)\b|[A-Z]\w+\(\w+=|\{'|<\w+\.\w+ object")
"""What Python prints of a value that nobody has put into words."""
by_name = {"ids": lambda path: path.name.partition(".")[0]}


@cache
def source_of(path):
    """Return what reports are made from: it is read once for all formats."""
    return ReportSource(StatsFile(path))


@cache
def built(path):
    """Return the document of a recorded run."""
    return source_of(path).document


FORMATS = {"text": TextReport, "markdown": MarkdownReport, "github": GithubReport, "html": HtmlReport}


@cache
def written(path, name):
    """Return what a format has of a recorded run, of the page its first screen, down to the contents; as text."""
    if name == "quiet":
        return "\n".join(brief_lines(built(path)))
    if name == "live":
        return answer_of(path, None)
    out = io.StringIO()
    FORMATS[name]().write(source_of(path), out)
    text = out.getvalue()
    if name == "html":
        text = text[text.index("<body") : text.index('<nav aria-label="Contents"')]
    return html.unescape(re.sub(r"<[^>]*>", " ", text)).replace("\\", "")


def words_of(text):
    """Return a text as one line without marks of Markdown."""
    return " ".join(re.sub(r"[*`\\]", "", text).split())


def compares(path):
    """Whether a run has verdicts."""
    verdicts = built(path).verdicts
    return verdicts is not None and bool(verdicts.comparisons)


@pytest.fixture(params=RECORDED, **by_name)
def recorded(request):
    """The document of a recorded run."""
    return built(request.param)


def is_alone(path):
    """Whether a run has one treatment, and so no verdict."""
    return built(path).verdicts is None and len(built(path).treatments) == 1 and not built(path).run.noop


@pytest.fixture(params=[path for path in (*RECORDED, PACKING) if is_alone(path)], **by_name)
def alone(request):
    """The stats file of a recorded run with one treatment."""
    return request.param


@pytest.fixture(params=[path for path in RECORDED if compares(path)], **by_name)
def document(request):
    """The document of a recorded run that compares."""
    return built(request.param)


def trust_of(page, table):
    """Return the lines between the table of verdicts and the next section but that of the warnings."""
    trust = []
    for line in page[max(place for place, line in enumerate(page) if line in table) + 1 :]:
        if line.startswith("---") and trust[-1] != "Warnings":
            trust.pop()  # the title of that section
            break
        if line.startswith("  scenario   "):
            break
        trust.append(line)
    return [line for line in trust if line.strip() and line.strip("-")]


def test_the_small_runs_are_those_of_the_script_and_take_little_room():
    """Each can be made again, and all of them together are small."""
    listed = subprocess.run(
        [ROOT / "script" / "record-pages", "--list"], capture_output=True, text=True, timeout=END_S, check=True
    )
    assert {path.name.partition(".")[0] for path in SMALL} <= {line.split()[0] for line in listed.stdout.splitlines()}
    assert sum(path.stat().st_size for path in SMALL) < BOUND


def test_the_page_says_what_was_run_and_on_which_host(recorded):
    """Its title is no file's name; a run of no operations has nothing but its name."""
    title = next(iter(lines(recorded)))
    if recorded.run.noop:
        assert title == "Weighbridge report: noop"
        return
    assert title == recorded.scenario.subject
    assert title.endswith(", on host vm")
    assert ".yaml" not in title


def test_a_page_is_in_words_and_fits_a_terminal(recorded):
    """No line is longer than one of a terminal, and no value is as Python prints it."""
    page = list(lines(recorded))
    assert [line for line in page if len(line) > DEFAULT_WIDTH] == []
    assert [line for line in page if RAW.search(line)] == []


def path_of(document):
    """Return the file of a document of `built`."""
    return next(path for path in RECORDED if built(path) is document)


def test_every_format_for_people_has_the_same_answer(document):
    """Text, Markdown, GitHub and HTML have one sentence, from one maker; the live page and -q have it alone."""
    path, answer = path_of(document), words_of(document.verdicts.answer)
    for name in FORMATS:
        assert answer in words_of(written(path, name)), name
    assert words_of(written(path, "live")) == answer
    assert words_of(written(path, "quiet")).endswith(answer)


@pytest.mark.parametrize("name", [*FORMATS, "quiet", "live"])
def test_the_rules_of_the_first_page_hold_in_every_format(recorded, name):
    """No word that belongs under -v, no bare dash, one way of saying a ratio, and no value as Python prints it."""
    text = written(path_of(recorded), name)
    # That ends may be late is told where no interval allows for it.
    private = [word for word in PRIVATE if recorded.verdicts is not None or word != LATE_ENDS]
    assert [word for word in private if word in text] == []
    assert not re.search(r"\| +- +\||^ +- *$|  -(?:  |$)", text, re.MULTILINE)
    assert not re.search(r"\u00d7|\b0\.\d+x|\d\.\d+ times|\bfold\b", text)
    assert not RAW.search(text.partition("Run again")[0])


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_the_table_of_values(document, name):
    """Beside the answer, each value that the answer has, and for each treatment its word."""
    text = words_of(written(path_of(document), name))
    for value in re.findall(r"\(([\d.,]+ ?(?:ms|s|us|/s))[,)]", document.verdicts.answer):
        assert text.count(value) >= 2, value
    assert all(one.word in text for one in document.verdicts.comparisons)
    assert "the baseline" in text


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_says_what_was_run_and_how_far_to_trust_it(recorded, name):
    """The title is no file's name; trust is the same word with the same reason."""
    text = words_of(written(path_of(recorded), name))
    title = recorded.scenario.subject or str(recorded.scenario.name)
    assert words_of(title) in text
    assert words_of(recorded.trust.sentence) in text


def test_a_run_that_compares_nothing_has_its_figure_as_the_answer(alone):
    """One sentence with the value of the only treatment: in text, with -v and -q, Markdown, HTML and for GitHub."""
    document = built(alone)
    (answer,) = value_sentences(document)
    assert re.match(r"(Each container: |response time |job time |\w+ )[^;]*\d", answer), answer
    assert list(brief_lines(document)) == [answer]
    page = list(lines(document))
    assert " ".join(" ".join(page[:8]).split()).startswith(f"{page[0]} {page[1]} {answer}")
    full = " ".join(" ".join(lines(document, full=True)).split())
    assert full.endswith(answer)
    for name in FORMATS:
        assert words_of(answer) in words_of(written(alone, name)), name


def test_the_sentence_of_a_packing_has_the_knee_only_where_one_was_looked_for():
    """Why none was looked for is below the table."""
    document = built(PACKING)
    (entry,) = document.treatments
    starts = replace(entry.packing.starts, reason="it takes more containers")
    changed = replace(document, treatments=[replace(entry, packing=replace(entry.packing, starts=starts))])
    assert "No knee up to 10" in only_value(document)
    assert "knee" not in only_value(changed)
    assert "No knee was looked for: it takes more containers." in " ".join(" ".join(lines(changed)).split())


def test_rounds_are_not_advised_where_jobs_failed(recorded):
    """More rounds of what does not work settle nothing; how many jobs failed is on the page."""
    page = " ".join(" ".join(lines(recorded)).split())
    assert f"{recorded.totals.failed:,} failed" in page
    if recorded.totals.failed and recorded.verdicts is not None:
        open_ones = [one for one in recorded.verdicts.comparisons if not (one.a_failure or one.b_failure)]
        assert page.count("more rounds would settle") <= len(open_ones)


def test_a_run_of_which_jobs_failed_begins_with_that():
    """How many, and the first reason: neither is a question of evidence, and no rounds are advised."""
    failed, once = (build_document(StatsFile(ROOT / "tests" / "data" / "pages" / f"{name}.stats.gz"))
                    for name in ("failed", "failed-once"))  # fmt: skip
    assert failed.verdicts.answer == "Failed against good (57.5 ms): bad (4 of 4 jobs: run: exit code 1 of 'false')."
    assert re.search(r"^  bad +FAILED +n/a", "\n".join(lines(failed)), re.MULTILINE)
    assert once.verdicts.answer.endswith("Jobs failed: first (1 of 4 jobs: run: exit code 1 of 'sh').")
    assert "more rounds" not in "\n".join(lines(once))
    for report in (HtmlReport(), MarkdownReport(), GithubReport(), JunitReport()):
        out = io.StringIO()
        report.write(ReportSource(StatsFile(Path(failed.stats_file))), out)
        words = re.sub(r"<(script|style).*?</\1>|type=\"inconclusive\"", "", out.getvalue(), flags=re.DOTALL)
        assert "4 of 4 jobs" in words, report.name
        assert "inconclusive" not in words.lower(), report.name


def test_a_treatment_that_failed_alone_has_no_figure_but_its_failure():
    """It is the answer, too, where nothing is compared."""
    document = build_document(StatsFile(ROOT / "tests" / "data" / "pages" / "failed.stats.gz"))
    good, bad = document.treatments
    alone = replace(document, treatments=[bad], verdicts=None)
    assert value_sentences(alone) == ["failed: 4 of 4 jobs: run: exit code 1 of 'false'."]
    assert value_sentences(replace(alone, treatments=[good])) != value_sentences(alone)


def test_an_interrupted_run_says_once_how_to_go_on():
    """Of the jobs that did not run there is one count."""
    page, missing = "\n".join(lines(built(INTERRUPTED))), built(INTERRUPTED).totals.missing
    assert missing
    assert page.count("did not run") + page.count("missing") == page.count(str(missing)) == 1


def named_by(document):
    """Return the words that a run brings with it: names, commands, programs, messages."""
    found = as_json(document)
    own = [found[name] for name in ("scenario", "errors", "thresholds", "published", "traced")]
    own += [host["findings"] for host in found["hosts"]]
    for entry in found["treatments"]:
        own += [entry[name] for name in ("treatment", "title", "disturbances", "packing")]
        own += [list(entry["operations"]), list(entry["metrics"])]
    return plain_words(json.dumps(own))


def plain_words(text):
    """Return the words of three letters and more, without those of which ids consist."""
    return set(re.findall(r"[a-z]{3,}", re.sub(r"\b[0-9a-f]{6,}\b", "", text).lower()))


def test_every_word_of_a_first_page_is_an_allowed_one(recorded):
    """Who adds one decides that a reader who knows neither the program nor statistics reads it with profit."""
    allowed = set((ROOT / "tests" / "data" / "first-page-words.txt").read_text("utf-8").split())
    assert plain_words("\n".join(lines(recorded))) - named_by(recorded) - allowed == set()


def test_the_page_has_one_value_of_what_treatments_are_compared_by(document):
    """That of the table of verdicts, the middle of the trials: side by side stand the other measures; -v has all."""
    judged = {each.measure for each in document.verdicts.comparisons}
    measures = {row[0].replace(" ", ".") for table in side_tables(document, full=False) for row in table.rows}
    every = {row[0].replace(" ", ".") for table in side_tables(document, full=True) for row in table.rows}
    assert not judged & (measures - {"MB/s"})
    assert measures <= every
    page = list(lines(document))
    aside = page[page.index("Side by side") :] if "Side by side" in page else []
    heads = tuple(f"  {one.replace('.', ' ')} " for one in judged)
    assert [line for line in aside if line.startswith(heads)] == []


def test_the_answer_has_the_value_of_each_treatment_that_has_one(document):
    """As the table below it has it."""
    page = "\n".join(lines(document))
    for one in document.verdicts.comparisons:
        rows = [line for line in page.splitlines() if one.name in line and one.word in line]
        assert rows
        assert document.verdicts.answer.count(one.name) >= 1
    for value in re.findall(r"\(([\d.,]+ ?(?:ms|s|us|/s))", document.verdicts.answer):
        assert f" {value} " in page or f" {value}\n" in page


def test_the_page_has_no_dash_for_a_value_and_no_private_words(document):
    """A side without a single value says why; what changes no word is under -v; trust is a paragraph."""
    page = list(lines(document))
    assert max(map(len, page)) <= DEFAULT_WIDTH
    table = [line for line in page if re.search(r"FASTER|SLOWER|SAME|INCONCLUSIVE|the baseline", line)]
    assert table
    assert not [line for line in table if re.search(r" -(?: |$)", line)]
    assert not [line for line in page if any(word in line for word in PRIVATE)]
    is_shown = document.stats_file in [str(path) for path in SHOWN]
    assert len(trust_of(page, table)) <= (MOST_TRUST if is_shown else MOST_DISTURBED)


def test_a_value_that_drifted_is_a_range():
    """With its reason in the answer, and as the same range in the table."""
    document = build_document(StatsFile(ROOT / "tests" / "data" / "pages" / "drift.stats.gz"))
    assert document.verdicts.answer == (
        "Faster than slower (188 to 440 ms, drifted): steady (56.6 to 97.5 ms, drifted, 3.25x as fast)."
    )
    page = "\n".join(lines(document))
    assert re.search(r"^  steady +FASTER +56\.6 to 97\.5 ms ", page, re.MULTILINE)
    assert re.search(r"^  slower +the baseline +188 to 440 ms$", page, re.MULTILINE)


def test_a_cause_is_one_warning(recorded):
    """However often it was seen: only how often, and what it was the first time."""
    causes = [re.sub(r"\([^)]*\)", "", text) for text in recorded.warnings]
    assert len(causes) == len(set(causes))


def test_a_warning_that_came_twice_says_so():
    """With the values of the first one."""
    document = build_document(StatsFile(ROOT / "tests" / "data" / "pages" / "score.stats.gz"))
    (told,) = [text for text in document.warnings if "silent" in text]
    assert told.startswith(
        "2 times: worker local-0 was silent for 5 s: its process waits for a CPU (load average 56.7 "
    )


def test_a_long_report_ends_with_the_answer(document):
    """Of hundreds of lines a terminal shows the last ones."""
    full = list(lines(document, full=True))
    end = full[len(full) - full[::-1].index("") :]
    assert " ".join(" ".join(end).split()) == document.verdicts.answer


def test_a_packing_has_no_dash_either():
    """What is less than the host's own changes is an upper limit."""
    page = "\n".join(lines(build_document(StatsFile(PACKING))))
    assert re.search(r"0 on local-0 +10 +[\d.]+MiB +[\d.]+% +[\d.]+ m?s +[\d.]+GiB +<[\d.]+MiB ", page)
    assert page.count("not distinguishable") == 1


def test_markdown_and_page_have_the_same_packings():
    """What each container takes is the same text in every format."""
    run = ReportSource(StatsFile(PACKING))
    limits = set(re.findall(r"<[\d.]+MiB", "\n".join(lines(run.document))))
    assert limits
    for report in (MarkdownReport(), HtmlReport()):
        out = io.StringIO()
        report.write(run, out)
        page = html.unescape(out.getvalue()).replace("\\", "")
        assert [limit for limit in limits if page.count(limit) != 1] == [], report.name
        assert page.count("0 on local-0") >= 1, report.name
        assert "stopped because: as many as asked for" in page, report.name
        assert "< in `each`: not distinguishable" in page, report.name


def test_packings_of_several_counts_come_before_the_tables_of_times():
    """What the containers take is what a packing is for, so it is on the first page."""
    document = build_document(StatsFile(PACKING))
    (ten,) = document.treatments
    twenty = replace(ten, treatment={**ten.treatment, "concurrency": 20}, title=f"{ten.title} 2")
    page = list(lines(replace(document, treatments=[ten, twenty])))
    packings = page.index("Packings")
    assert sum("0 on local-0" in line for line in page[packings:]) == 2
    assert not [line for line in page[:packings] if line in ("Scaling", "Side by side")]
