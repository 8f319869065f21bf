"""What the diagnosis of a run finds in its stats file, and what follows for its verdicts."""

import itertools
import math

import numpy as np
import pytest
from builders import S, StatsBuilder, footer, header, host, treatment_wire

from bench_common.errors import UsageError
from bench_common.records import ticket_of
from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import build_document
from bench_master.analysis.run_summary import summarize
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.scenario.model import AGAIN
from bench_master.verdicts.reasons import Code

HOST = {"boot_id": "b-0", "machine_id": "m-0", "cpu_model": "Xeon", "kernel": "6.1"}


class Run:
    """Builds a run of rounds in drawn order, with one job in each trial."""

    def __init__(self, path, *, engines=("docker", "podman"), rounds=20, order="interleaved", **changes):
        self.path, self.rounds, self.order = path, rounds, order
        self.draw = np.random.default_rng(changes.pop("seed", 5))
        self.labels = changes.pop("labels", [{"environment": "local", "engine": engine} for engine in engines])
        self.wires = changes.pop("wires", [{}] * len(self.labels))
        self.hosts = changes.pop("hosts", [HOST])
        self.worker_of = changes.pop("worker_of", [0] * len(self.labels))
        self.speeds = changes.pop("speeds", None)
        self.programs = changes.pop("programs", {})
        self.resumed_before = changes.pop("resumed_before", None)
        self.start_cost_s = changes.pop("start_cost_s", None)
        """What the first operation of each job takes, ``start-cost``."""
        self.changes = changes

    def write(self, seconds, noise=0.01):
        """Write it; a job takes `seconds(side, block, trial)`, multiplied with lognormal noise."""
        sides = range(len(self.labels))
        blocks = [[(side, block, False) for side in self._ordered(sides)] for block in range(self.rounds)]
        trials = list(itertools.chain.from_iterable(blocks))
        if self.order == "blocked":
            trials.sort(key=lambda trial: trial[0])
        wires = [
            treatment_wire(n, own) | wire for n, (own, wire) in enumerate(zip(self.labels, self.wires, strict=True))
        ]
        builder = StatsBuilder(self.path, header(wires, trials, order=self.order, **self.changes))
        for number, fingerprint in enumerate(self.hosts):
            its = {"fingerprint": fingerprint, "programs": self.programs}
            builder.add("host", host(worker=number, host=f"blade-{number + 1}", **its))
        now = 1001 * S
        for trial, (side, block, _) in enumerate(trials):
            if trial == self.resumed_before:
                builder.add("event", {"at_ns": now, "kind": "resumed", "rerun_trials": [], "first_job": trial})
            if self.speeds is not None:
                wall, cpu = (np.array([round(ms * self.draw.normal(1e6, 1e4))]) for ms in self.speeds(trial))
                columns = {"time_ns": np.array([now]), "trial": np.array([trial]), "wall_ns": wall, "cpu_ns": cpu}
                builder.writer.samples(0, "speed", columns, {})
            workers = [int(worker) for worker in np.atleast_1d(self.worker_of[side])]
            begin = {"at_ns": now, "kind": "trial-begin", "trial": trial, "workers": workers}
            builder.add("event", begin)
            ends = []
            for place, worker in enumerate(workers):
                took = round(seconds(side, block, trial) * math.exp(self.draw.normal(0, noise)) * S)
                row = {"ticket": ticket_of(8 * trial + place), "treatment": side, "trial": trial, "worker": worker}
                builder.add_jobs(row | {"start_ns": now, "end_ns": now + took})
                if self.start_cost_s is not None:
                    step = {"operation": 0, "start_ns": now, "duration_ns": round(self.start_cost_s * S), "ok": 1}
                    builder.add_operations({key: row[key] for key in ("ticket", "treatment", "trial")} | step)
                ends.append(now + took)
            now = max(ends)
            builder.add("event", {"at_ns": now, "kind": "trial-end", "trial": trial, "not_started": 0})
        builder.close(footer())
        return self

    def _ordered(self, sides):
        return self.draw.permutation(list(sides)).tolist() if self.order == "interleaved" else list(sides)

    def verdicts(self, **options):
        return build_document(StatsFile(self.path), options=VerdictOptions(**options)).verdicts


@pytest.fixture
def run(tmp_path):
    count = itertools.count()
    return lambda **changes: Run(tmp_path / f"run{next(count)}.stats.gz", **changes)


def kinds(flags):
    return {flag.kind for flag in flags}


REPEATED = [{"engine": "docker"}, {"engine": "podman"}, {"engine": "docker", AGAIN: "again"}]
"""Two treatments, of which the first runs once more at the end of each round."""


def sides(side, ratio=1.1):
    return 0.1 * ratio**side


def test_a_quiet_run_has_no_flags(run):
    """Everything was looked for; nothing was found; each treatment has its number."""
    verdicts = run(speeds=lambda _: (50, 50)).write(lambda side, *_: sides(side)).verdicts()
    (only,) = verdicts.comparisons
    assert (only.verdict, verdicts.design.grade, verdicts.runs.flags, only.flags) == ("slower", "A", [], [])
    assert verdicts.runs.looked_for == [
        "drift", "steps", "autocorrelation", "regimes", "carry-over", "changes of the hosts' speed",
        "differences in parameters, versions or hosts",
    ]  # fmt: skip
    assert (only.a_value, only.b_value) == pytest.approx((0.1, 0.11), rel=0.01)


def test_the_cost_of_a_start_is_told_where_it_matters(run):
    """Once, of the treatment that it is the largest share of, and not below the margin."""
    wires = [{"operation_names": ["start-cost"]}] * 2
    much = run(start_cost_s=0.02, wires=wires).write(lambda side, *_: sides(side)).verdicts()
    (flag,) = much.runs.flags
    assert (flag.kind, flag.level, flag.where) == ("start-cost", "warning", "environment=local engine=docker")
    assert flag.size == pytest.approx(0.2, rel=0.02)
    assert flag.text.startswith("environment=local engine=docker: starting a process takes 20.0 ms, 20 % of its ")
    all_of_it = run(start_cost_s=0.2, wires=wires).write(lambda side, *_: sides(side)).verdicts()
    assert "takes 200 ms, all of its time" in all_of_it.runs.flags[0].text
    little = run(start_cost_s=0.002, wires=wires).write(lambda side, *_: sides(side)).verdicts()
    assert little.runs.flags == []


def test_drift_costs_the_single_numbers_and_no_verdict(run):
    """Rounds cancel it; a median of a treatment that got slower by a third would be of no time at all."""
    verdicts = run().write(lambda side, block, trial: sides(side) * (1 + trial / 120)).verdicts()
    (only,) = verdicts.comparisons
    assert only.verdict == "slower"
    assert only.ratio == pytest.approx(1.1, abs=0.02)
    assert (only.a_value, only.b_value) == (None, None)
    (whole,) = [flag for flag in verdicts.runs.flags if flag.where == "blade-1"]
    assert whole.level == "warning"
    assert "ratios within a round hold, single values do not" in whole.text
    (docker,) = [flag for flag in only.flags if "docker" in flag.where]
    assert docker.text.startswith("environment=local engine=docker: no single number: ")
    assert "; the first was 1" in docker.text


def test_what_is_told_beside_the_main_finding_is_not_said_to_be_missing(run):
    """The trials of a ratio that drifts are alike to their neighbours, too: one text tells of both."""
    verdicts = run().write(lambda side, block, _: sides(side) * (1 + side * block / 20)).verdicts()
    flags = [flag for flag in verdicts.comparisons[0].flags if "autocorrelation" in flag.text]
    assert flags
    assert all("neighbours" in flag.also for flag in flags)
    assert "autocorrelation" not in verdicts.runs.looked_for


def test_the_same_drift_refuses_an_order_that_was_not_drawn(run):
    """As written, the second of each round is always later: a treatment that ran twice says what that does."""
    quiet = run(order="as-written", labels=REPEATED).write(lambda side, *_: sides(side % 2)).verdicts()
    assert (quiet.comparisons[0].verdict, quiet.design.grade) == ("slower", "B")
    assert quiet.design.reasons == ["the order of the trials was not drawn (order: as-written)"]
    drifting = run(order="as-written", labels=REPEATED).write(
        lambda side, block, trial: sides(side % 2) * (1 + trial / 120)
    )
    verdicts = drifting.verdicts()
    assert verdicts.comparisons[0].verdict == "refused"
    assert "drift" in verdicts.comparisons[0].reason
    assert verdicts.runs.flags[0].level == "refusal"
    assert run(order="blocked").write(lambda side, *_: sides(side)).verdicts().comparisons[0].verdict == "refused"


def test_an_order_that_was_not_drawn_carries_no_word_that_a_place_in_a_round_explains(run):
    """The first trial of each round takes 5 % longer: without a second run of a treatment nothing shows that."""

    def first_is_late(side, *_):
        return 1.05 if side == 0 else 1.0

    alone = run(order="as-written").write(first_is_late).verdicts()
    assert (alone.comparisons[0].verdict, alone.design.grade) == ("refused", "D")
    assert "the place in a round may make any difference" in alone.comparisons[0].reason
    (only,) = run(order="as-written", labels=REPEATED).write(first_is_late).verdicts().comparisons
    assert only.verdict == "inconclusive"
    assert only.reasons[0].code == Code.DEPENDS_ON_POSITION
    assert only.low < 1.0 < only.high
    large = run(order="as-written", labels=REPEATED).write(lambda side, *_: first_is_late(side) * (1 + side % 2))
    assert large.verdicts().comparisons[0].verdict == "slower"
    drawn = run(labels=REPEATED).write(lambda side, *_: sides(side % 2)).verdicts()
    assert drawn.design.grade == "A"


def test_a_change_of_speed_is_named_with_its_cause(run):
    """The hosts measured it before each trial: another user of the CPUs, or CPUs that got slower."""

    def slow(trial):
        return 1.21 if trial // 6 % 2 else 1.0

    def write(cpu):
        speeds = run(speeds=lambda trial: (50 * slow(trial), cpu(trial)))
        return speeds.write(lambda side, block, trial: sides(side) * slow(trial)).verdicts()

    (others,) = [flag for flag in write(lambda _: 50).runs.flags if flag.kind == "speed"]
    assert "blade-1 changed speed (two levels, 1.21x apart, 6 changes between them" in others.text
    assert "others used its CPUs" in others.text
    throttled = write(lambda trial: 50 * slow(trial))
    assert any("its CPUs did" in flag.text for flag in throttled.runs.flags)
    assert throttled.comparisons[0].verdict == "slower"
    assert throttled.comparisons[0].a_value is None


def test_a_busy_host_from_the_middle_on_changes_no_verdict_and_is_reported(run):
    """A program that takes half of the CPU time from mid-run on: both sides take twice as long from there."""
    busy = run(speeds=lambda trial: (100 if trial >= 20 else 50, 50))
    verdicts = busy.write(lambda side, block, trial: sides(side) * (2 if trial >= 20 else 1)).verdicts()
    quiet = run().write(lambda side, *_: sides(side)).verdicts()
    (only,), (undisturbed,) = verdicts.comparisons, quiet.comparisons
    assert only.verdict == undisturbed.verdict == "slower"
    assert only.ratio == pytest.approx(undisturbed.ratio, rel=0.02)
    assert only.a_value is only.b_value is None
    assert {"speed", "regimes"} <= kinds(verdicts.runs.flags)
    assert "others used its CPUs" in next(flag.text for flag in verdicts.runs.flags if flag.kind == "speed")


def test_an_effect_that_changed_has_no_ratio(run):
    """Both halves must agree for a direction, and there is never a ratio or sameness."""
    grows = run().write(lambda side, block, _: sides(side, 1.02 + 0.01 * block)).verdicts().comparisons[0]
    assert (grows.verdict, grows.ratio, grows.low, grows.high) == ("slower", None, None, None)
    assert grows.reason.startswith("the effect itself changed, from +")
    turns = run().write(lambda side, block, _: sides(side, 0.7 + 0.05 * block)).verdicts().comparisons[0]
    assert turns.verdict == "inconclusive"
    assert turns.reason.startswith("the effect itself changed, from -")
    assert kinds(turns.flags) & {"drift", "step"}


def test_what_one_treatment_leaves_to_the_next_is_reported(run):
    """Each trial after docker takes 20 % more; the ratio may be off by half of that."""
    last = {}

    def seconds(side, block, trial):
        slow = 1.2 if last.get("side") == 0 else 1.0
        last["side"] = side
        return 0.1 * slow

    (only,) = run(rounds=40).write(seconds).verdicts().comparisons
    (flag,) = [flag for flag in only.flags if flag.kind == "carry-over"]
    assert flag.size == pytest.approx(math.sqrt(1.2) - 1, abs=0.02)
    assert "let the host settle between trials" in flag.text


def test_a_carry_over_widens_the_interval(run):
    """Equal treatments, and trials after docker take 5 % more: without that the second side seems slower."""
    last = {}

    def seconds(side, block, trial):
        slow = 1.05 if last.get("side") == 0 else 1.0
        last["side"] = side
        return 0.1 * slow

    (only,) = run(rounds=40).write(seconds, noise=0.003).verdicts().comparisons
    assert (only.verdict, only.reasons[0].code) == ("inconclusive", Code.DEPENDS_ON_CARRY_OVER)
    assert only.low < 1.0 < only.high
    assert "carry-over" in kinds(only.flags)


def test_a_check_that_could_find_nothing_is_not_listed(run):
    """Ten rounds have too few trials that open a round for a carry-over, and six trials too few for a step."""
    few, many = (run(rounds=rounds).write(lambda side, *_: sides(side)).verdicts() for rounds in (10, 20))
    assert "carry-over" not in few.runs.looked_for
    assert {"carry-over", "steps"} <= set(many.runs.looked_for)
    assert "steps" not in run(rounds=4).write(lambda side, *_: sides(side)).verdicts().runs.looked_for
    # Of three treatments trials within a round tell, too.
    three = run(engines=("docker", "podman", "crun"), rounds=12).write(lambda side, *_: sides(side)).verdicts()
    assert "carry-over" in three.runs.looked_for


def test_a_short_warm_up_and_outliers(run):
    """The first round is the slowest of most treatments; one wild trial is named and kept."""
    many = run(engines=tuple("abcdefgh"))
    verdicts = many.write(lambda side, block, trial: 0.1 * (1.5 if not block else 1.0)).verdicts()
    assert "warm-up" in kinds(verdicts.runs.flags)
    wild = run().write(lambda side, block, _: sides(side) * (3 if (side, block) == (0, 4) else 1)).verdicts()
    (note,) = [flag for flag in wild.runs.flags if flag.kind == "outliers"]
    assert (note.level, "(round 5)" in note.text) == ("note", True)
    assert wild.comparisons[0].rounds == 20


def test_rounds_that_an_interruption_split_are_left_out(run):
    """One part of the round ran in another hour than the other; what runs are compared by lacks it, too."""
    made = run(resumed_before=11).write(lambda side, *_: sides(side))
    split = made.verdicts()
    assert [np.isfinite(one.trials.values).sum() for one in summarize(StatsFile(made.path)).treatments.values()] == [
        19,
        19,
    ]
    assert (split.design.grade, split.comparisons[0].rounds) == ("B", 19)
    assert split.design.reasons == ["1 round was split by an interruption and left out"]
    assert run(resumed_before=10).write(lambda side, *_: sides(side)).verdicts().design.grade == "A"


def test_unlike_parameters_are_refused_unless_accepted(run):
    """Nobody can tell the effect of eight jobs at once from that of the engine."""
    both = run(wires=[{"concurrency": 2}, {"concurrency": 8}]).write(lambda side, *_: sides(side))
    verdicts = both.verdicts()
    (only,) = verdicts.comparisons
    assert (only.verdict, only.ratio is not None) == ("refused", True)
    assert only.reason == "a property differs besides the treatment (concurrency is 2 and 8)"
    assert [(one.name, one.level) for one in verdicts.environment.differences] == [("concurrency", "refusal")]
    accepted = both.verdicts(accept=frozenset({"concurrency"}))
    assert (accepted.comparisons[0].verdict, accepted.environment.differences[0].level) == ("slower", "accepted")
    with pytest.raises(UsageError, match="did you mean 'concurrency'"):
        both.verdicts(accept=frozenset({"concurency"}))


def test_what_surrounds_a_process_and_a_container_is_named_beside_the_verdict(run):
    """Containers have another locale: a word about the engine may be about that, unless both are given one."""
    labels = [{"engine": "native"}, {"engine": "docker"}]
    programs = {
        "native": {"side user": "root", "side variable PATH": "/home/bin", "side variable LANG": "C.UTF-8"},
        "docker": {"side user": "root", "side variable LANG": "de_DE.UTF-8"},
    }

    def differing(wire, **options):
        made = run(labels=labels, wires=[{**wire, "engine": one["engine"]} for one in labels], programs=programs)
        verdicts = made.write(lambda side, *_: sides(side)).verdicts(**options)
        assert verdicts.comparisons[0].verdict == "slower"
        return [(one.name, *one.values.values(), one.level) for one in verdicts.environment.differences]

    beside = {"plain_environment": "container"}
    assert differing(beside) == [("variable LANG", "unset", "de_DE.UTF-8", "warning")]
    assert differing(beside, accept=frozenset({"variable LANG"}))[0][-1] == "accepted"
    assert differing({**beside, "container": {"env": {"LANG": "C"}}}) == []
    mounts = [{"kind": "tmpfs", "target": "/tmp"}, {"kind": "host", "target": "/in", "source": "/in"}]
    mounted = differing({**beside, "container": {"env": {"LANG": "C"}, "storage": mounts}})
    assert mounted == [("container.storage", "the host's own disk", "tmpfs at /tmp", "warning")]
    assert [one[:2] for one in differing({"plain_environment": "inherit"})] == [
        ("variable PATH", "/home/bin"),
        ("variable LANG", "C.UTF-8"),
    ]


def test_sides_on_hosts_of_their_own_are_refused_with_what_tells_these_apart(run):
    """Two hosts differ in more than their environment, and in speed even where their properties agree."""
    labels = [{"environment": name, "engine": "docker"} for name in ("bare-metal", "hypervisor")]
    other = HOST | {"boot_id": "b-1", "machine_id": "m-1", "cpu_model": "EPYC"}
    apart = run(labels=labels, hosts=[HOST, other], worker_of=[0, 1]).write(lambda side, *_: sides(side)).verdicts()
    (only,) = apart.comparisons
    assert only.verdict == "refused"
    assert "different hosts (1 on one side)" in only.reason
    assert "cpu_model is Xeon and EPYC" in only.reason
    assert only.tipping is not None


def test_four_hosts_against_four_carry_words_about_hosts(run):
    """Each host counts once: the interval is of hosts, and unlike hosts must be accepted."""
    labels = [{"environment": name, "engine": "docker"} for name in ("bare-metal", "hypervisor")]
    hosts = [HOST | {"boot_id": f"b-{n}", "machine_id": f"m-{n}"} for n in range(8)]
    fleet = {"labels": labels, "worker_of": [[0, 1, 2, 3], [4, 5, 6, 7]], "rounds": 6}
    alike = run(hosts=hosts, **fleet).write(lambda side, *_: sides(side, 1.5)).verdicts()
    (only,) = alike.comparisons
    assert (only.verdict, only.rounds, alike.design.grade, alike.design.unit) == ("slower", 4, "C", "host")
    assert only.low < 1.5 < only.high
    unlike = [one | ({"kernel": "5.10"} if n > 3 else {}) for n, one in enumerate(hosts)]
    refused = run(hosts=unlike, **fleet).write(lambda side, *_: sides(side, 1.5))
    reason = "a property differs besides the treatment (kernel is 6.1 and 5.10)"
    assert refused.verdicts().comparisons[0].reason == reason
    assert refused.verdicts(accept=frozenset({"kernel"})).comparisons[0].verdict == "slower"
