"""Gates: conditions on verdicts, and what they make of the exit code."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from builders import (
    S,
    StatsBuilder,
    comparison_report,
    footer,
    header,
    host,
    lost_rounds,
    treatment_report,
    treatment_wire,
)
from places import DATA
from rounds import Rounds
from verdict_builders import said

from bench_common.errors import ExitCode, UsageError
from bench_common.records import ticket_of
from bench_common.thresholds import parse_condition, parse_verdict_condition
from bench_master.analysis.gates import check_gates, judge_gates, requested_gates
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.analysis.verdict_types import PartReport
from bench_master.cli import run_command_line
from bench_master.verdicts.reasons import Code, because

SLOWER = comparison_report("podman", "slower", (1.182, 1.21, 1.239))
SAME = comparison_report("crun", "same", (0.991, 1.005, 1.02))
OPEN = comparison_report("runsc", "inconclusive", (0.941, 0.977, 1.039), reasons=[said("neither is shown")])
FASTER = comparison_report("native", "faster", (1 / 83.0, 1 / 79.6, 1 / 76.1))
REFUSED = comparison_report(
    "vm", "refused", (0.8, 0.86, 0.9), reasons=[because(Code.NOT_INTERLEAVED, kind="blocked")]
)
GAP = comparison_report("slow", "slower", (1.98, 2.0, 2.02), confidence=0.75, rounds=3)
FEW = comparison_report(
    "few",
    "inconclusive",
    (0.98, 1.0, 1.02),
    confidence=0.75,
    rounds=3,
    reasons=[because(Code.TOO_FEW_ROUNDS, rounds=3)],
)
CHANGED = because(Code.EFFECT_CHANGED, first=1.2, last=1.6)
GROWN, TURNED, SHORT = (
    comparison_report("podman", word, (None, None, None), reasons=[CHANGED], parts=parts)
    for word, parts in (
        ("slower", [PartReport(1, 10, 1.2, 1.18, 1.22), PartReport(11, 20, 1.6, 1.55, 1.65)]),
        ("inconclusive", [PartReport(1, 10, 0.8, 0.78, 0.82), PartReport(11, 20, 1.6, 1.55, 1.65)]),
        ("slower", [PartReport(1, 10, 1.4, 1.15, 1.65)]),
    )
)
UNBOUND = comparison_report("podman", "inconclusive", (None, 1.0, None))


def outcome(comparison, *, fail_on=(), require=(), require_verdict=False, thresholds=()):
    options = VerdictOptions(fail_on=fail_on, require=require, require_verdict=require_verdict)
    (found,) = judge_gates(requested_gates(options, thresholds), [comparison])
    return found


def code(comparisons, **given):
    options = VerdictOptions(**{name: value for name, value in given.items() if name != "thresholds"})
    found = judge_gates(requested_gates(options, given.get("thresholds", ())), comparisons)
    return ExitCode.gravest(each.exit_code for each in found)


# -- the grammar --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "where", "phrase", "factor"),
    [
        ("slower", (), "slower", None),
        ("not slower by 5%", (), "not slower by 5%", 1.05),
        (" engine=docker   slower by 5 % ", (("engine", "docker"),), "slower by 5 %", 1.05),
        (
            "engine=a, note='b c' not faster by 10 times",
            (("engine", "a"), ("note", "b c")),
            "not faster by 10 times",
            10,
        ),
        ("same where engine=podman", (("engine", "podman"),), "same", None),
    ],
)
def test_a_condition_is_parsed(text, where, phrase, factor):
    """Labels before or after it, a word, maybe negated, maybe a size."""
    condition = parse_condition(text)
    assert (condition.where, condition.phrase(), condition.factor) == (where, phrase, factor)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slowr", "'slowr': unknown word 'slowr' (did you mean 'slower'?); one of: slower, faster"),
        ("engine=docker slowr by 5%", "unknown word 'slowr' (did you mean 'slower'?)"),
        ("slower by 5", "'5' is not a size such as 5% or '2 times'"),
        ("slower by -5%", "'-5%' is not a size"),
        ("slower by 0.5 times", "'0.5 times' is not a size"),
        ("slower 5%", "is not of the form [KEY=VALUE] [not] WORD [by N%]"),
        ("same by 3%", "leave 'by' out and set the margin"),
        ("engine=docker", "is not of the form"),
        ("", "is not of the form"),
    ],
)
def test_a_malformed_condition_is_refused(text, message):
    """The message has the text, what is expected and the nearest spelling."""
    with pytest.raises(ValueError, match=r"is not|unknown|margin") as refusal:
        parse_verdict_condition(text)
    assert message in str(refusal.value)


# -- one gate -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comparison", "text", "state", "said"),
    [
        (SLOWER, "slower", "failed", "podman is slower: +21.0 % [+18.2, +23.9]"),
        (SLOWER, "slower by 15%", "failed", "podman is slower by 15%"),
        (SLOWER, "slower by 20%", "passed", "is not shown to be slower by 20%; up to +23.9 % is possible"),
        (SLOWER, "slower by 30%", "passed", "podman is not slower by 30%"),
        (SLOWER, "faster", "passed", "podman is not faster"),
        (SLOWER, "different by 10%", "failed", "podman is different by 10%"),
        (SAME, "slower", "passed", "crun is not slower: +0.5 % [-0.9, +2.0]"),
        (SAME, "different", "passed", "crun is not different"),
        (OPEN, "slower", "passed", "runsc is not shown to be slower; up to +3.9 % is possible"),
        (OPEN, "faster", "passed", "runsc is not shown to be faster; down to -5.9 % is possible"),
        (OPEN, "not faster", "passed", "is not shown to be not faster; up to +3.9 % is possible"),
        (OPEN, "different", "passed", "anything in [-5.9, +3.9] is possible"),
        (FASTER, "slower", "passed", "native is not slower: 79.6x less [76.1, 83.0]"),
        (GAP, "slower by 50%", "failed", "slow is slower by 50%"),
        (GAP, "slower by 95%", "undecided", "slow cannot be judged by slower by 95%: there is no interval"),
        (FEW, "slower", "undecided", "cannot be judged by slower: 3 rounds are too few"),
        (
            GROWN,
            "slower by 5%",
            "failed",
            "+20.0 % [+18.0, +22.0] in rounds 1 to 10, +60.0 % [+55.0, +65.0] in rounds 11",
        ),
        (GROWN, "slower by 30%", "failed", "podman is slower by 30%"),
        (GROWN, "slower by 62%", "passed", "up to +65.0 % is possible"),
        (GROWN, "slower by 70%", "passed", "podman is not slower by 70%"),
        (TURNED, "slower", "failed", "podman is slower: -20.0 %"),
        (TURNED, "faster", "failed", "podman is faster: -20.0 %"),
        (SHORT, "slower by 5%", "failed", "podman is slower by 5%: +40.0 % [+15.0, +65.0] in rounds 1 to 10"),
        (SHORT, "slower by 20%", "undecided", "cannot be judged by slower by 20%"),
        (SHORT, "slower by 90%", "undecided", "cannot be judged by slower by 90%"),
        (UNBOUND, "slower by 5%", "undecided", "cannot be judged"),
        (UNBOUND, "slower", "undecided", "cannot be judged"),
        (REFUSED, "slower", "undecided", "vm cannot be judged: the verdict is refused: not interleaved"),
        (REFUSED, "faster", "undecided", "vm cannot be judged"),
    ],
)
def test_what_a_run_fails_on(comparison, text, state, said):
    """Only what is shown fails; a green gate says what remains possible; what is refused is never green."""
    found = outcome(comparison, fail_on=(text,))
    assert (found.state, found.exit_code) == (state, {"passed": 0, "failed": 1, "undecided": 4}[state])
    assert said in found.text


@pytest.mark.parametrize(
    ("comparison", "text", "state"),
    [
        (SLOWER, "not slower", "failed"),
        (SLOWER, "not slower by 20%", "undecided"),
        (SLOWER, "not slower by 25%", "passed"),
        (SAME, "same", "passed"),
        (SAME, "not slower", "passed"),
        (SAME, "not slower by 1%", "undecided"),
        (OPEN, "not slower", "undecided"),
        (OPEN, "not slower by 5%", "passed"),
        (OPEN, "not slower by 3%", "undecided"),
        (OPEN, "same", "undecided"),
        (FASTER, "faster by 10 times", "passed"),
        (FASTER, "faster by 80 times", "undecided"),
        (FASTER, "same", "failed"),
        (GAP, "not slower", "failed"),
        (GROWN, "not slower by 30%", "failed"),
        (GROWN, "not slower by 62%", "undecided"),
        (GROWN, "not slower by 70%", "passed"),
        (GROWN, "slower by 10%", "passed"),
        (GROWN, "slower by 30%", "failed"),
        (SHORT, "not slower by 5%", "failed"),
        (SHORT, "not slower by 90%", "undecided"),
        (UNBOUND, "not slower", "undecided"),
        (REFUSED, "not slower by 50%", "undecided"),
    ],
)
def test_what_a_run_requires(comparison, text, state):
    """Only what is shown is green: not to be shown to be slower is not enough. A threshold says the same."""
    for found in (outcome(comparison, require=(text,)), outcome(comparison, thresholds=[text])):
        assert (found.state, found.exit_code) == (state, {"passed": 0, "failed": 1, "undecided": 4}[state])


def test_rates_turn_the_interval_round():
    """A measure that is better when it is higher is slower when it is lower, by the same factor."""
    rate = comparison_report("vm", "slower", (0.88, 0.9, 0.92), direction="higher", measure="jobs_per_s", unit="1/s")
    assert outcome(rate, fail_on=("slower by 5%",)).state == "failed"
    assert outcome(rate, require=("not slower by 15%",)).state == "passed"
    unsure = comparison_report("vm", "inconclusive", (0.95, 0.98, 1.02), direction="higher")
    assert outcome(unsure, fail_on=("slower",)).text.endswith("down to -5.0 % is possible")


def test_a_difference_is_judged_by_the_interval_of_its_ratio():
    """Of a measure that is 0 in some trials; without such an interval a size cannot be judged."""
    found = comparison_report("podman", "slower", (0.1, 0.2, 0.3), scale="difference")
    assert outcome(found, fail_on=("slower",)).state == "failed"
    for given in ({"require": ("not slower by 5%",)}, {"fail_on": ("slower by 5%",)}):
        assert outcome(found, **given).state == "undecided"
    known = comparison_report("podman", "slower", (0.1, 0.2, 0.3), scale="difference", ratio_low=1.9, ratio_high=2.2)
    assert outcome(known, fail_on=("slower by 5%",)).text.endswith("is slower by 5%: a ratio in [1.90, 2.20]")
    assert outcome(known, require=("not slower by 3 times",)).state == "passed"


ONES = np.exp(0.01 * np.random.default_rng(7).normal(size=(2, 20)))


@pytest.mark.parametrize(("first", "last", "rounds"), [(2, 10, 20), (1.2, 1.6, 20), (1.0, 1.6, 20), (1.2, 1.6, 10)])
def test_a_regression_that_grows_during_the_run_is_red(tmp_path, first, last, rounds):
    """The report gives no one ratio; the gate is judged by the halves, or by all rounds where these are too short."""
    a, b = ONES[:, :rounds]
    steady = np.linspace(first, last, rounds)
    effect = np.where(np.arange(rounds) < rounds // 2, first, last) if rounds > 12 else steady
    grown = Rounds(tmp_path / "run.stats.gz").write(a, b * effect)
    found = grown.verdicts(fail_on=("slower by 5%",))
    assert (found.comparisons[0].ratio, found.exit_code) == (None, 1)
    assert grown.verdicts(require=("not slower by 5%",)).exit_code == 1
    assert [(each.first, each.last) for each in found.comparisons[0].parts] == (
        [(1, 10), (11, 20)] if rounds > 12 else [(1, 10)]
    )


@pytest.mark.parametrize(("ratio", "gates"), [(2.0, [1, 1, 0]), (1.0, [0, 0, 0])])
def test_one_zero_leaves_a_gate_its_ratio(tmp_path, ratio, gates):
    """The limit is tested by ``b - f a``, which needs no logarithm."""
    a, b = ONES.copy()
    a[4] = 0.0
    names = {"labels": [{"engine": "docker"}, {"engine": "podman"}]}
    run = Rounds(tmp_path / "run.stats.gz", **names).write(a, b * ratio)
    assert run.only().scale == "difference"
    assert [
        run.verdicts(**options).exit_code
        for options in (
            {"fail_on": ("slower by 5%",)},
            {"require": ("not slower by 5%",)},
            {"require": ("not slower by 3 times",)},
        )
    ] == gates


def test_an_open_end_is_beyond_every_limit():
    """An interval without an upper end shows what its lower end shows."""
    found = comparison_report("podman", "slower", (1.3, 2.0, None))
    assert outcome(found, fail_on=("slower by 20%",)).state == "failed"
    assert "any increase is possible" in outcome(found, fail_on=("slower by 50%",)).text


def test_a_verdict_is_required():
    """Any word will do, but none is 4."""
    assert [outcome(each, require_verdict=True).exit_code for each in (SLOWER, SAME, GAP, OPEN, REFUSED)] == [
        0,
        0,
        0,
        4,
        4,
    ]
    assert outcome(OPEN, require_verdict=True).text == "runsc is inconclusive: neither is shown"


# -- all gates together -------------------------------------------------------------------------------------------


def test_precedence():
    """A failed gate before missing rounds, these before what cannot be judged; an interruption before all."""
    assert code([SLOWER, SAME, REFUSED], fail_on=("slower",)) == 1
    assert code([SLOWER, lost_rounds()], fail_on=("slower",)) == 1
    assert code([SAME, lost_rounds(), REFUSED], fail_on=("slower",)) == 3
    assert code([SAME, REFUSED], fail_on=("slower",)) == 4
    assert code([SAME, OPEN], fail_on=("slower",)) == 0
    assert code([SAME, OPEN], fail_on=("slower",), require=("same",)) == 4
    assert code([REFUSED, lost_rounds()]) == 0
    assert [int(ExitCode.gravest(codes)) for codes in ((), (0, 4), (4, 3), (3, 4, 1), (1, 2), (1, 130))] == [
        0, 4, 3, 1, 2, 130,
    ]  # fmt: skip


def test_missing_rounds_are_named():
    """A verdict that depends on rounds that are missing is an incomplete run, and no undecided question."""
    found = outcome(lost_rounds(lost=2), fail_on=("slower",))
    assert (found.state, found.exit_code) == ("undecided", 3)
    assert found.text == "podman cannot be judged: 2 rounds are missing, and the verdict depends on them"


def test_gates_that_are_about_some_treatments():
    """Labels limit a gate; one that is about no comparison is never green, unless its treatment was skipped."""
    assert code([SLOWER, SAME], fail_on=("engine=crun slower",)) == 0
    assert code([SLOWER, SAME], thresholds=("engine=podman not slower by 30%", "jobs.failed == 0")) == 0
    assert code([SLOWER], thresholds=("engine=crun same",)) == 4
    assert code([], fail_on=("slower",)) == 4
    left_out = treatment_report(treatment={"engine": "crun"}, skipped="crun is not installed")
    (skipped,) = judge_gates(requested_gates(VerdictOptions(), ["engine=crun same"]), [SLOWER], [left_out])
    assert (skipped.state, skipped.comparison) == ("passed", "")


def test_labels_that_no_treatment_has_are_refused():
    """With the nearest spelling, before anything runs."""
    labels = [{"engine": "docker", "memory": 512}, {"engine": "podman", "memory": 512}]

    def check(text):
        check_gates(requested_gates(VerdictOptions(fail_on=(text,)), ()), labels)

    check("engine=podman, memory=512 slower")
    with pytest.raises(UsageError, match=r"no treatment has engine=podmn \(did you mean 'podman'\?\); one of: d"):
        check("engine=podmn slower")
    with pytest.raises(UsageError, match=r"no treatment has a label 'engin' \(did you mean 'engine'\?\)"):
        check("engin=podman slower")


# -- the commands -------------------------------------------------------------------------------------------------

A = (1.00, 1.02, 0.99, 1.10, 1.01, 0.98, 1.03, 1.05, 1.00, 1.04)


def run_of_rounds(path, factor, *, foot=True, **head):
    """Write a run of docker and podman, whose trials take `factor` times as long; return its path."""
    treatments = [treatment_wire(index, {"engine": engine}) for index, engine in enumerate(("docker", "podman"))]
    trials = [(side, block, False) for block in range(len(A)) for side in range(2)]
    builder = StatsBuilder(path, header(treatments, trials, **head)).add("host", host())
    now = 1001 * S
    for trial, (side, block, _) in enumerate(trials):
        took = int(A[block] * (1 + side * (factor * (1 + block / 500) - 1)) * S)
        row = {"ticket": ticket_of(trial), "treatment": side, "trial": trial, "start_ns": now, "end_ns": now + took}
        builder.add("event", {"at_ns": now, "kind": "trial-begin", "trial": trial, "workers": [0]}).add_jobs(row)
        now += took
        builder.add("event", {"at_ns": now, "kind": "trial-end", "trial": trial, "not_started": 0})
    return builder.close(footer() if foot else None)


@pytest.mark.parametrize(
    ("factor", "words", "status", "said"),
    [
        (1.06, ["--fail-on", "slower"], 1, "--fail-on slower: failed: podman is slower: +"),
        (1.06, ["--fail-on", "slower by 10%"], 0, ""),
        (0.999, ["--fail-on", "slower", "--require", "same", "--require-verdict"], 0, ""),
        (
            1.06,
            ["--require", "engine=podman not slower"],
            1,
            '--require "engine=podman not slower": failed: podman is',
        ),
        (
            1.06,
            ["--require", "not slower by 6.5%"],
            4,
            "undecided: podman is neither shown to be not slower by 6.5% nor",
        ),
    ],
)
def test_gates_of_a_report(tmp_path, capsys, factor, words, status, said):
    """One that fails, one that passes, one that cannot be judged; stderr has the reason."""
    path = run_of_rounds(tmp_path / "run.stats.gz", factor)
    assert run_command_line(["report-scenario", "-s", str(path), *words]) == status
    assert said in capsys.readouterr().err


def test_a_refused_verdict_is_never_green(tmp_path, capsys):
    """A blocked run gives 4 under any gate, and 0 without one."""
    path = run_of_rounds(tmp_path / "run.stats.gz", 1.06, order="blocked")
    for words, status in (([], 0), (["--fail-on", "faster"], 4), (["--require", "slower"], 4)):
        assert run_command_line(["report-scenario", "-s", str(path), *words]) == status
    assert "podman cannot be judged: the verdict is refused: not interleaved" in capsys.readouterr().err


def test_thresholds_on_verdicts_are_gates(tmp_path, capsys):
    """They stand in the scenario, and need no option."""
    for number, (threshold, status) in enumerate([("engine=podman not slower by 5%", 1), ("slower by 2%", 0)]):
        path = run_of_rounds(tmp_path / f"{number}.stats.gz", 1.06, thresholds=[threshold, "jobs.failed == 0"])
        assert run_command_line(["report-scenario", "-s", str(path), "--format", "json"]) == status
        report = json.loads(capsys.readouterr().out)
        assert [entry["threshold"] for entry in report["thresholds"]] == ["jobs.failed == 0"] * 2
        assert [gate["exit_code"] for gate in report["verdicts"]["gates"]] == [status]
        assert report["verdicts"]["exit_code"] == status


def test_a_failed_gate_of_an_incomplete_run_is_1(tmp_path, capsys):
    """What is shown comes before what is missing, and that before what cannot be judged."""
    path = run_of_rounds(tmp_path / "run.stats.gz", 1.06, foot=False, thresholds=["operations.start.p95_s < 1s"])
    for words, status in (
        ([], 3),
        (["--fail-on", "slower"], 1),
        (["--fail-on", "faster"], 3),
        (["--require", "not slower by 6.5%"], 3),
    ):
        assert run_command_line(["report-scenario", "-s", str(path), *words]) == status, words
    capsys.readouterr()


def test_a_malformed_gate_is_a_usage_error(tmp_path, capsys):
    """With the nearest spelling, of the words and of the labels."""
    path = run_of_rounds(tmp_path / "run.stats.gz", 1.0)
    with pytest.raises(SystemExit) as leaving:
        run_command_line(["report-scenario", "-s", str(path), "--fail-on", "slowr"])
    assert leaving.value.code == 2
    assert "--fail-on: 'slowr': unknown word 'slowr' (did you mean 'slower'?)" in capsys.readouterr().err
    assert run_command_line(["report-scenario", "-s", str(path), "--fail-on", "engine=podmn slower"]) == 2
    assert "no treatment has engine=podmn (did you mean 'podman'?)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "told"), [("threshold", "threshold failed"), ("failed", "no job succeeded in 1 of")]
)
def test_a_complete_run_that_is_resumed_has_the_exit_code_with_which_it_ended(tmp_path, capsys, name, told):
    """`run || run --resume` stays red where a threshold failed or a treatment has no result."""
    path = Path(shutil.copy(DATA / "pages" / f"{name}.stats.gz", tmp_path))
    assert run_command_line(["report-scenario", "-s", str(path)]) == 1
    capsys.readouterr()
    assert run_command_line(["run-scenario", "--resume", str(path)]) == 1
    assert told in capsys.readouterr().err


def test_a_gate_on_a_complete_run_that_is_resumed_is_judged(tmp_path, capsys):
    """There is nothing to resume, and the gate is red all the same."""
    path = run_of_rounds(tmp_path / "run.stats.gz", 1.06)
    for words, status in (([], 0), (["--fail-on", "faster"], 0), (["--fail-on", "slower"], 1)):
        assert run_command_line(["run-scenario", "--resume", str(path), *words]) == status
    assert "--fail-on slower: failed: podman is slower" in capsys.readouterr().err
    for words in (["-u", "5"], ["--set", "repeats=9"]):
        assert run_command_line(["run-scenario", "--resume", str(path), *words]) == 2
        assert "leave it out" in capsys.readouterr().err
