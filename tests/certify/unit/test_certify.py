"""Certificates: what runs of equal treatments say of a machine, when it holds, and what its command refuses."""

import itertools
import json
import math
from datetime import datetime, timedelta

import numpy as np
import pytest
from certificates import MACHINE, a_run, certificate
from msgspec.structs import replace
from rounds import Rounds

from bench_common.errors import InfrastructureError, UsageError
from bench_common.stats.reader import StatsFile
from bench_features.certify import certify
from bench_features.certify.certificate import (
    RunSeries,
    kept_file,
    load,
    machine_of,
    save,
)
from bench_features.certify.findings import (
    bounded,
    detectable,
    false_words,
    floor_of,
    pooled_sd,
    probe_finding,
    spreads,
)
from bench_features.certify.page import clause, markdown_lines, page_lines
from bench_features.certify.runs import Evidence, own_plan, plan_of, probe_correlation, read_evidence, tell_apart
from bench_master.cli import run_command_line
from bench_master.run_data.aggregate import SpeedReading
from bench_master.verdicts.planning import smallest_effect
from bench_master.verdicts.student import binomial_interval

AGAIN = "(aa)"
TWINS = [{"engine": "native"}, {"engine": "native", AGAIN: "again"}]


def built(tmp_path, ratio=1.0, rounds=12, jobs=20, seed=5):
    """Write a run of a treatment and its twin, which takes `ratio` times as long, and return what it says."""
    draw = np.random.default_rng(seed)
    sides = [
        [0.01 * factor * math.exp(0.02 * draw.normal()) * np.exp(0.1 * draw.normal(size=jobs)) for _ in range(rounds)]
        for factor in (1.0, ratio)
    ]
    written = Rounds(tmp_path / f"{ratio}-{seed}.stats.gz", labels=TWINS).write(*sides)
    return read_evidence(written.path, 4.0)


def test_a_treatment_and_its_twin_are_compared_as_two(tmp_path):
    """Equal ones get no word for a difference; the measures are those of the jobs, with a percentile of 20 jobs."""
    found = built(tmp_path)
    (compared,) = found.run.comparisons
    assert (compared.treatment, compared.measure) == ("engine=native", "job.p50")
    assert compared.word in ("same", "inconclusive")
    assert compared.low < 1.0 < compared.high
    assert [one.measure for one in found.run.measures] == ["job.p50", "job.p95"]
    assert all(one.rounds == 12 and abs(one.estimate) < 0.1 for one in found.run.measures)
    assert math.exp(found.run.measures[0].level) == pytest.approx(0.01, rel=0.1)


def test_a_false_word_is_one(tmp_path):
    """Of built runs those whose twin takes half as long again have a word for a difference, and are counted."""
    runs = [
        built(tmp_path, ratio, seed=seed).run for ratio, seed in ((1.0, 1), (1.5, 2), (1.0, 3), (1.5, 4), (1.0, 5))
    ]
    found = false_words(runs)
    assert (found.comparisons, found.found, found.runs, found.runs_found) == (5, 2, 5, 2)
    assert found.words["slower"] == 2
    assert (found.runs_low, found.runs_high) == binomial_interval(2, 5)


def test_the_interval_of_a_share_is_exact():
    """The ends of Clopper and Pearson for 2 of 10, as their tables have them, and for none of 28 in closed form."""
    assert binomial_interval(2, 10) == pytest.approx((0.0252, 0.5561), abs=1e-4)
    assert binomial_interval(0, 28) == pytest.approx((0.0, 1.0 - 0.025 ** (1 / 28)))
    assert binomial_interval(7, 7) == pytest.approx((0.025 ** (1 / 7), 1.0))


def test_twins_of_several_treatments_keep_apart(tmp_path):
    """Each treatment is told from its own twin, and one that ran once is compared with none."""
    labels = [
        {"engine": "crun", "job": "x"}, {"engine": "crun", "job": "y"}, {"engine": "runc", "job": "x"},
        {"engine": "crun", "job": "x", AGAIN: "again"}, {"engine": "crun", "job": "y", AGAIN: "again"},
    ]  # fmt: skip
    written = Rounds(tmp_path / "run.stats.gz", labels=labels).write(*(np.full((8, 4), 0.01) for _ in labels))
    assert [(one.a, one.b, one.name) for one in tell_apart(StatsFile(written.path).header)] == [
        (0, 3, "engine=crun job=x"), (1, 4, "engine=crun job=y")
    ]  # fmt: skip
    found = read_evidence(written.path, 1.0).run
    assert [one.treatment for one in found.comparisons] == ["engine=crun job=x", "engine=crun job=y"]


def test_a_run_without_twins_is_no_evidence(tmp_path):
    """A file of another run cannot be certified."""
    written = Rounds(tmp_path / "run.stats.gz").write(np.full((8, 4), 0.01), np.full((8, 4), 0.01))
    with pytest.raises(InfrastructureError, match="no treatment that ran twice"):
        read_evidence(written.path, 1.0)


def test_a_place_in_a_round_is_measured(tmp_path):
    """In the built run the second side is later in each round, so that its 10 % are those of the place."""
    found = built(tmp_path, 1.1)
    (series,) = found.run.series
    assert series.place == pytest.approx(math.log(1.1), abs=0.04)


# -- what runs say together -----------------------------------------------------------------------------------------


def test_what_a_run_can_show_is_what_its_power_notes_say():
    """The spread of all runs together goes through the code of power notes; six rounds are the fewest."""
    (measure,) = certificate([a_run(sd=0.03), a_run(sd=0.04)]).measures
    sd = math.sqrt((0.03**2 + 0.04**2) / 2)
    assert measure.sd == pytest.approx(math.expm1(sd))
    assert list(measure.detectable) == ["6", "10", "20", "30"]
    assert measure.detectable["20"] == pytest.approx(math.expm1(smallest_effect(sd, 20)))
    assert detectable(sd, 5) is None
    assert pooled_sd([(1.0, 1), (3.0, 3)]) == pytest.approx(math.sqrt((1 + 27) / 4))


def test_the_floor_is_what_runs_of_equal_treatments_stay_below():
    """Of a few runs it is the largest difference, of many their 95th percentile."""
    assert floor_of([0.01, -0.03, 0.02]) == 0.03
    many = np.linspace(-0.1, 0.1, 201)
    assert floor_of(many) == pytest.approx(0.095, abs=0.001)


def test_runs_and_days_are_told_apart():
    """Runs of one boot within half a day are one occasion; a spread takes two of a kind."""
    assert spreads([(0, 1.0), (0, 3.0), (1, 12.0), (1, 14.0)]) == pytest.approx((math.sqrt(2.0), math.sqrt(60.5)))
    assert spreads([(0, 1.0), (1, 2.0)]) == (None, pytest.approx(math.sqrt(0.5)))
    assert spreads([(0, 1.0)]) == (None, None)
    first = [a_run(level=level) for level in (0.0, 0.02)]
    later = [a_run(level=level, began="2026-01-03T03:04:05+00:00") for level in (0.1, 0.12)]
    found = certificate([*first, *later])
    assert found.occasions == 2
    (measure,) = found.measures
    assert measure.between_runs == pytest.approx(math.expm1(0.02 / math.sqrt(2)))
    assert measure.between_days == pytest.approx(math.expm1(0.1 / math.sqrt(2)))
    assert certificate(first).measures[0].between_days is None


def test_a_probe_that_follows_the_rounds_explains_them():
    """A probe that is as the differences has the correlation 1; a trial that has no reading does not count."""
    readings = [SpeedReading(trial, int(1e8 * math.exp(0.01 * trial * trial)), 1) for trial in range(6)]
    trials = [(0, 1), (3, 2), (4, 5), (6, 7)]
    differences = [0.01, -0.05, 0.09, 0.5]
    assert probe_correlation(trials, differences, readings) == (pytest.approx(1.0, abs=1e-4), 3)
    assert probe_correlation(trials, differences) == (None, 0)


def test_a_probe_without_a_connection_has_the_r2_of_chance():
    """Correlations of random series square to 1 / rounds on average, and are not shown to be anything."""
    draw = np.random.default_rng(3)
    runs = []
    for number in range(200):
        own, probe = draw.normal(size=(2, 10))
        readings = [SpeedReading(2 * n + k, int(1e8 * math.exp(k * probe[n])), 1) for n in range(10) for k in (0, 1)]
        correlation, rounds = probe_correlation([(2 * n, 2 * n + 1) for n in range(10)], own.tolist(), readings)
        runs.append(replace(a_run(number), series=(RunSeries("engine=native", None, None, correlation, rounds),)))
    found = probe_finding(runs)
    assert found.chance == pytest.approx(0.1)
    assert found.r2 == pytest.approx(0.1, abs=0.03)
    assert not found.explains
    same = [a_run(number) for number in range(10)]
    assert probe_finding(same).explains
    assert probe_finding([replace(a_run(), series=())]) is None


def test_an_interval_takes_six_runs():
    """Fewer have an estimate alone."""
    assert bounded([0.1] * 5).low is None
    assert bounded([0.1, 0.2, 0.1, 0.2, 0.1, 0.2]).low == pytest.approx(0.1)
    assert bounded([None]) is None


# -- the certificate ------------------------------------------------------------------------------------------------


def test_a_certificate_is_what_was_written(tmp_path):
    """It is read back as it was; another content has another id, and a changed file is refused with its name."""
    made = certificate([a_run(), a_run(1, word="slower")])
    path = tmp_path / "deep" / "certificate.json"
    save(made, path)
    assert load(path) == made
    assert made.id == made.sealed().id
    assert certificate([a_run()]).id != made.id
    assert load(tmp_path / "none.json") is None
    path.write_text(path.read_text().replace('"found": 1', '"found": 0'))
    with pytest.raises(UsageError, match=r"certificate\.json: was changed"):
        load(path)
    path.write_text("{}")
    with pytest.raises(UsageError, match="is no certificate"):
        load(path)


def test_a_certificate_holds_for_its_machine_and_its_time():
    """Another kernel voids it, and so does age; another boot, and a page more of memory, do not."""
    made = certificate([a_run()])
    here = machine_of({**MACHINE, "hostname": "other", "boot_id": "new", "memory": (8 << 30) + 4096})
    assert made.why_void(here) == []
    assert made.why_void(here | {"kernel": "6.2", "cpu_governor": "powersave"}) == [
        "cpu_governor unknown is now powersave", "kernel 6.1 is now 6.2"
    ]  # fmt: skip
    late = datetime.fromisoformat(made.created) + timedelta(days=31)
    (why,) = made.why_void(here, late)
    assert why.startswith("it is older than 30 days")


def test_each_machine_has_its_own_file(tmp_path):
    """Homes may be shared; the name is a file's, whatever the host is called; $XDG_DATA_HOME counts if absolute."""
    environ = {"XDG_DATA_HOME": str(tmp_path)}
    path = kept_file("../blade 1", MACHINE, environ)
    assert path == tmp_path / "weighbridge" / "certificates" / ".._blade_1-0123456789abcdef.json"
    assert kept_file("blade", MACHINE | {"machine_id": "f"}, environ) != kept_file("blade", MACHINE, environ)
    assert kept_file("blade", MACHINE, {"XDG_DATA_HOME": "data"}).is_absolute()


def test_the_page_says_what_may_be_believed():
    """False words with their bound, each measure by rounds, order, probe, machine; why it is void comes first."""
    made = certificate(
        [*(a_run(number, estimate=0.01 * (-1) ** number) for number in range(7)), a_run(7, word="slower")]
    )
    text = " ".join(" ".join(page_lines(made)).split())
    assert f"Certificate {made.id} of host blade" in text
    assert "different in 1 of 8 runs (0.3 to 52.7 % at" in text
    assert "7 same, 1 slower" in text
    assert "job.p50 1.00 s 1.0 %" in text
    assert "+1.0 % [+1.0, +1.0]" in text
    assert "by chance 10.0 %: it explains some" in text
    assert "kernel 6.1" in text
    assert "run-3" not in text
    assert "run-3" in "\n".join(page_lines(made, verbose=True))
    void = [line for line in page_lines(made, ["kernel 6.1 is now 6.2"]) if "VOID" in line]
    assert void == ["  VOID: kernel 6.1 is now 6.2"]
    assert clause(made).startswith("equal treatments differed in 1 of 8 runs, 10 rounds show ")


def test_the_page_is_there_as_markdown():
    """For an issue or a pull request: the same sentences, a table without columns that say nothing, no text of ours
    that the host's name or the jobs turn into markup."""
    made = certificate([a_run(number, level=0.01 * number) for number in range(7)], host="b*c", jobs="`true` <b>")
    lines = list(markdown_lines(made, ["kernel 6.1 is now 6.2"]))
    assert lines[:3] == [f"**Certificate {made.id} of host b&#42;c**", "", "- **VOID**: kernel 6.1 is now 6.2"]
    (head,) = [line for line in lines if "n=10" in line]
    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        "measure", "value", "floor", "n=6", "n=10", "n=20", "n=30", "runs",
    ]  # fmt: skip
    text = "\n".join(lines)
    assert "- **jobs**: &#96;true&#96; &#60;b&#62;" in text
    plain = [" ".join(line.split()) for line in page_lines(made)]
    assert "different in none of 7 runs" in text
    assert "different in none of 7 runs" in " ".join(plain)
    assert "run-3" in "\n".join(markdown_lines(made, verbose=True))
    assert "run-3" not in text


# -- the command ----------------------------------------------------------------------------------------------------


def complaint(capsys, *words):
    """Return what a refused command line prints."""
    try:
        status = run_command_line(["certify", *map(str, words)])
    except SystemExit as ended:
        status = ended.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    return err


SEVERAL = (
    "name: s\nengines: [native, docker]\ncontainer: {image: x, command: [a]}\njobs: {j: {operations: [run, wait]}}\n"
)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--budget", "soon"), "--budget: 'soon': expected a duration"),
        (("--rounds", "5"), "--rounds"),
        (("--engine", "nativ"), "unknown engine (did you mean 'native'?)"),
        (("-f", "several.yaml"), "has several engines; name the one to certify: --engine native"),
        (("-f", "several.yaml", "--engine", "dock"), "--engine dock: several.yaml has no such engine (did you mean"),
        (("-f", "missing.yaml"), "missing.yaml"),
        (("--keep", "."), "--keep .: is there already"),
    ],
)
def test_what_cannot_be_certified_is_refused(capsys, tmp_path, monkeypatch, words, said):
    """Before anything runs, with the place and what to give instead."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "several.yaml").write_text(SEVERAL)
    monkeypatch.setattr(certify, "make_run", lambda *_: pytest.fail("a run was made"))
    assert said in complaint(capsys, *words)


def test_a_scenario_runs_its_treatments_twice(tmp_path):
    """Those of the engine that is named, as often as there are rounds; other rounds are another plan."""
    path = tmp_path / "several.yaml"
    path.write_text(SEVERAL)
    plan = plan_of(str(path), "docker", 10)
    assert plan.overrides == ("--set", "repeats=10", "--set", "aa.engine=docker", "--only", "engine=docker")
    assert plan_of(str(path), "docker", 12).digest != plan.digest
    assert plan_of(str(path), "docker", 10).digest == plan.digest
    path.write_text(SEVERAL.replace("native, ", ""))
    assert plan_of(str(path), None, 10).overrides[3].startswith("aa.")
    assert own_plan("native", 10).digest != own_plan("docker", 10).digest


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return the properties of a machine that a command finds, whose runs take no time and say what `a_run` says."""
    facts = {**MACHINE, "hostname": "blade"}
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(certify, "query_worker", lambda *_: [{"facts": dict(facts)}])
    counter = itertools.count()

    def made(*_):
        return Evidence(a_run(next(counter)), "blade", dict(facts), 10, 0.03)

    monkeypatch.setattr(certify, "make_run", made)
    return facts


def certified(capsys, *words):
    """Return the exit code of a command that certifies, and its certificate."""
    status = run_command_line(["certify", "--format", "json", "-v", *words])
    return status, json.loads(capsys.readouterr().out)


def test_one_run_is_made_whatever_the_budget(capsys, machine):
    """It is kept, shown again, and replaced by the next."""
    status, found = certified(capsys, "--budget", "0.001s")
    assert (status, len(found["runs"])) == (0, 1)
    status, again = certified(capsys, "--show")
    assert (status, again) == (0, found)
    machine["kernel"] = "6.2"
    assert run_command_line(["certify", "--show"]) == 1
    assert "VOID: kernel 6.1 is now 6.2" in capsys.readouterr().out
    status, other = certified(capsys, "--budget", "0.001s")
    assert (other["machine"]["kernel"], len(other["runs"])) == ("6.2", 1)


def test_runs_of_another_day_are_added(capsys, machine):
    """Those of the same plan on the same machine; others are refused, and what is kept stays as it is."""
    certified(capsys, "--budget", "0.001s")
    status, found = certified(capsys, "--between", "--budget", "0.001s")
    assert (status, [run["run_id"] for run in found["runs"]]) == (0, ["run-0", "run-1"])
    assert "is of other runs" in complaint(capsys, "--between", "--rounds", "12")
    machine["kernel"] = "6.2"
    assert "the machine is not what it was: kernel 6.1 is now 6.2" in complaint(capsys, "--between")
    path = kept_file("blade", MACHINE)
    assert len(load(path).runs) == 2


def test_an_interrupt_keeps_what_was_made(capsys, machine, monkeypatch):
    """The runs before it are certified; without any there is no certificate."""
    runs = iter([certify.make_run(), certify.make_run()])

    def interrupted(*_):
        try:
            return next(runs)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(certify, "make_run", interrupted)
    status, found = certified(capsys, "--budget", "1h")
    assert (status, len(found["runs"])) == (130, 2)
    assert run_command_line(["certify"]) == 130
    assert "nothing to certify" in capsys.readouterr().err
    assert len(load(kept_file("blade", MACHINE)).runs) == 2


def test_a_machine_that_changes_meanwhile_ends_it(capsys, machine, monkeypatch):
    """What ran on the machine as it was is certified; the exit code says that it is not all."""
    make = certify.make_run

    def changing(*_):
        found = make()
        machine["cpu_governor"] = "powersave"
        return found

    monkeypatch.setattr(certify, "make_run", changing)
    status, found = certified(capsys, "--budget", "1h")
    assert (status, len(found["runs"])) == (3, 1)


def test_false_words_beyond_chance_fail(capsys, machine, monkeypatch):
    """Equal treatments that differ in each of three runs are no chance."""
    runs = iter([Evidence(a_run(n, word="slower"), "blade", MACHINE, 10, 0.03) for n in range(3)])

    def made(*_):
        try:
            return next(runs)
        except StopIteration:
            raise InfrastructureError("the engine is gone") from None

    monkeypatch.setattr(certify, "make_run", made)
    assert run_command_line(["certify", "--budget", "1h"]) == 3
    assert "different in 3 of 3 runs" in capsys.readouterr().out
    monkeypatch.setattr(certify, "make_run", lambda *_: Evidence(a_run(word="slower"), "blade", MACHINE, 10, 0.03))
    assert binomial_interval(3, 3)[0] > 0.05
    assert run_command_line(["certify", "--between", "--budget", "0.001s"]) == 1
    assert "more often than promised" in capsys.readouterr().err
