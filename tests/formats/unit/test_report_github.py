"""The GitHub job summary: verdict, effects, warnings, its limit, and hostile texts."""

import io
from types import SimpleNamespace

import pytest
from builders import lifecycle_run
from msgspec.structs import replace
from verdict_builders import comparison, engine_verdicts, said

from bench_common.stats.reader import StatsFile
from bench_features.formats.github import GithubReport
from bench_master.analysis.document import build_document
from bench_master.analysis.verdict_types import GateReport


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    return build_document(StatsFile(lifecycle_run(tmp_path_factory.mktemp("github") / "run.stats.gz")))


def written(document, gates=()):
    out = io.StringIO()
    GithubReport().write(SimpleNamespace(document=document, gates=gates, detail="page"), out)
    return out.getvalue()


def test_the_answer_comes_first_then_the_effects_then_the_warnings(document):
    """As in the Markdown report."""
    text = written(replace(document, verdicts=engine_verdicts(), warnings=["the clock stepped"]))
    answer = text.index("native (3.86 ms, 79.6x as fast). Slower: podman (371 ms, +21.0 %).")
    table = text.index("| SLOWER ")
    assert text.startswith("### Weighbridge: quickstart\n")
    assert answer < table < text.index("[+18.2, +23.9]") < text.index("the clock stepped")
    assert "1 x exec: exit-code, such as: exit code 3: no such table\n" in text
    assert "\nRun 20260102-030405-abcdef, " in text


def test_gates_without_verdicts_are_a_table_with_those_that_failed_first(document):
    """With what was wanted and what it is."""
    gate = GateReport("--require faster", "undecided", "", "cannot be judged", 4)
    failed = GateReport("--fail-on slower", "failed", "", "slower", 1)
    text = written(replace(document, verdicts=None), [gate, failed])
    assert text.index("| FAILED") < text.index("| UNDECIDED") < text.index("Run 2026")
    assert "### Gates" not in written(replace(document, verdicts=engine_verdicts()), [gate])


def test_an_incomplete_run_says_so_above_every_measure(document):
    """As in every format."""
    text = written(replace(document, run_state="incomplete", incomplete=["the run was interrupted"]))
    assert text.index("> INCOMPLETE: ") < text.index("|")


def test_a_summary_is_smaller_than_github_allows(document):
    """A table of very many treatments ends after a whole line, and says that it ends."""
    many = [
        comparison(
            f"engine{place}",
            "slower",
            1.2,
            1.1,
            1.3,
            reasons=[said(f"{place} " + "x" * 500)],
            labels={"engine": f"engine{place}"},
        )
        for place in range(3000)
    ]
    text = written(replace(document, verdicts=engine_verdicts(comparisons=many)))
    assert 900_000 < len(text.encode()) < 1 << 20
    assert text.endswith("\n> The report is longer than GitHub shows, and ends here; the stats file has all of it.\n")
    assert "ends here" not in written(document)


def test_no_text_of_a_run_is_markup_a_link_or_a_mention(document):
    """Not the scenario's name, a warning, an error or a gate."""
    evil = "<script>alert(1)</script> | **bold** @root https://evil.example ![x](y) \u202e" + "w" * 10_000
    scenario = replace(document.scenario, name=evil)
    gate = GateReport(evil, "failed", "", evil, 1)
    text = written(replace(document, scenario=scenario, warnings=[evil], verdicts=engine_verdicts()), [gate])
    for wrong in ("<script", "**bold**", "@root", "https://", "![x]", "\u202e"):
        assert wrong not in text
