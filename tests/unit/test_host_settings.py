"""Settings of a host as treatments: names, the key, who must allow them, and what is put back by whom."""

import os
from functools import partial
from pathlib import Path

import msgspec
import pytest

from bench_common.argument_types import InvalidValue
from bench_common.errors import ScenarioError
from bench_common.host_settings import choices, chosen, setting_name, setting_names
from bench_common.job_kind import read_job
from bench_common.requirements import SettingNeed, settings_for_worker
from bench_common.stats.block_types import as_stored
from bench_common.treatment import Treatment
from bench_master.analysis.parameters import parameter_differences
from bench_master.run.preflight import check_compatibility
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_worker.host import setting_switch, settings
from bench_worker.host.setting_switch import SettingSwitch
from bench_worker.host.settings import (
    SettingClaim,
    SettingError,
    SettingRefused,
    restore_abandoned,
    try_values,
    unusable_reason,
)
from bench_worker.preflight import find_setting_problems

RCU = "sys/kernel/rcu_expedited"
SWAPPINESS = "proc/sys/vm/swappiness"
COMMAND = "container: {command: [sleep, '1']}\n"


def scenario(host, rest=""):
    text = f"name: a\nengines: [native]\njob:\n  operations: [run, wait, remove]\n  host: {host}\n{COMMAND}{rest}"
    return parse_scenario(Source("s.yaml", text))


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (RCU, RCU),
        ("proc/sys/vm/swappiness", SWAPPINESS),
        ("vm.swappiness", SWAPPINESS),
        ("swappiness", SWAPPINESS),
        ("thp", "sys/kernel/mm/transparent_hugepage/enabled"),
        ("governor", "governor"),
        ("net.ipv4.conf.eth0/100.forwarding", "proc/sys/net/ipv4/conf/eth0.100/forwarding"),
    ],
)
def test_a_setting_has_one_name(written, name):
    """However it is written: runs with the same settings are recognised as such."""
    assert setting_name(written) == name


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("/sys/kernel/rcu_expedited", "(write sys/kernel/rcu_expedited)"),
        ("goveror", "did you mean 'governor'?"),
        ("sys/../etc/passwd", "expected a host setting"),
        ("proc/self/mem", "expected a host setting"),
        ("vm.//.x", "expected a host setting"),
        ("", "expected a host setting"),
    ],
)
def test_what_is_no_setting_is_refused(written, told):
    """Nothing outside of /sys and /proc/sys can be meant; the nearest right spelling is told."""
    with pytest.raises(ValueError, match="unknown host setting") as refused:
        setting_name(written)
    assert told in str(refused.value)
    with pytest.raises(InvalidValue):
        setting_names(f"thp,{written}")


def test_texts_of_files_are_understood():
    """A choice shows its value in brackets; white space of a list of numbers does not matter."""
    assert (chosen("always [madvise] never\n"), choices("always [madvise] never")) == (
        "madvise",
        ("always", "madvise", "never"),
    )
    assert (chosen("4096\t131072\t6291456\n"), choices("4096 131072")) == ("4096 131072 6291456", ())
    assert chosen("[x]") == "[x]"


def test_a_list_of_values_makes_treatments():
    """The label is the setting as written, the record has its one name; other jobs and treatments are told apart."""
    made = scenario("{rcu_expedited: [0, 1], thp: madvise}")
    assert [one.labels for one in made.treatments] == [
        {"engine": "native", "rcu_expedited": "0"},
        {"engine": "native", "rcu_expedited": "1"},
    ]
    assert made.treatments[1].host == {RCU: "1", "sys/kernel/mm/transparent_hugepage/enabled": "madvise"}
    same = scenario("{thp: madvise}", "matrix: {host.rcu_expedited: [0, 1]}\n")
    assert [one.host for one in same.treatments] == [one.host for one in made.treatments]
    wire = msgspec.convert(made.treatments[0].to_dict(), Treatment, dec_hook=read_job)
    assert wire == made.treatments[0]


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        (
            "{vm.swappiness: 1, swappiness: 1}",
            "s.yaml:5:40: host settings 'vm.swappiness' and 'swappiness' are the same",
        ),
        ("{rcu_expeditd: 1}", "s.yaml:5:10: unknown host setting 'rcu_expeditd' (did you mean 'rcu_expedited'?)"),
        ("{thp: [always, always]}", "s.yaml:5:24: 'always' is in this list twice"),
        ("{thp: []}", "s.yaml:5:15: an empty list"),
        ("{thp: {a: b}}", "s.yaml:5:15: "),
        ("thp", "s.yaml:5:9: "),
    ],
)
def test_mistakes_have_a_place(host, problem):
    """Line and column are those of the key or the value that is wrong."""
    with pytest.raises(ScenarioError) as refused:
        scenario(host)
    assert problem in str(refused.value)


def test_a_matrix_of_an_unknown_setting_is_refused():
    """The same words as for the key itself."""
    with pytest.raises(ScenarioError, match="unknown host setting 'rcu'"):
        scenario("{}", "matrix: {host.rcu: [0, 1]}\n")


def test_a_worker_must_allow_each_setting():
    """By name, in its hello; the reason says where the scenario gives the value, and what to do."""
    made = scenario("{rcu_expedited: [0, 1], swappiness: 10}")
    status = {"name": "native", "usable": True, "operations": ["run", "wait", "remove"], "settings": ["command"]}

    def reasons(allowed):
        info = {"engines": {"native": status}, "allow_native": True, "allow_host_settings": allowed}
        return check_compatibility(
            made.treatments,
            environment="local",
            slots=1,
            info=info,
            noop=False,
            places=made.setting_places,
        ).reasons

    assert reasons([RCU, SWAPPINESS]) == ()
    [reason] = reasons([RCU])
    assert reason.startswith(f"s.yaml:5:45: host setting {SWAPPINESS} may not be changed: ")
    assert reason.endswith(f": start it with --allow-host-settings {SWAPPINESS}")
    assert len(reasons([])) == 3


def test_workers_are_asked_for_the_values_of_their_environment():
    """Each once, in the order of the plan."""
    made = scenario("{rcu_expedited: [1, 0], swappiness: 10}")
    assert settings_for_worker(made.treatments, "local") == [
        SettingNeed(SWAPPINESS, ["10"]),
        SettingNeed(RCU, ["1", "0"]),
    ]


def test_runs_under_other_settings_do_not_compare():
    """A value that no label names is a parameter like any other; a value that a label names is the treatment."""
    one, other = (as_stored(scenario(f"{{thp: {value}}}").treatments[0]) for value in ("madvise", "never"))
    name = "host.sys/kernel/mm/transparent_hugepage/enabled"
    assert [(each.name, each.a, each.b, each.effect) for each in parameter_differences(one, other)] == [
        (name, "madvise", "never", "refusal")
    ]
    without = as_stored(scenario("{}").treatments[0])
    assert [each.name for each in parameter_differences(one, without)] == [name]
    sides = [as_stored(each) for each in scenario("{thp: [madvise, never]}").treatments]
    assert parameter_differences(*sides) == []


# -- what a worker does, on files in place of the kernel's ----------------------------------------------------------


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Two settings, ``a`` with the value 5 and ``b`` with 7, their names, and the directory of records."""
    monkeypatch.setattr(settings, "ROOTS", (f"{os.path.realpath(tmp_path)}/",))
    records = tmp_path / "records"
    records.mkdir()
    return Kernel(tmp_path, records)


class Kernel:
    def __init__(self, folder, records):
        self.records = records
        self.a, self.b = (str(folder / name).removeprefix("/") for name in "ab")
        self.set(a="5", b="7")

    def set(self, **values):
        for name, value in values.items():
            Path(f"/{getattr(self, name)}").write_text(value)

    @property
    def values(self):
        return settings.current(self.a), settings.current(self.b)

    def claim(self, run_id="r1"):
        return SettingClaim(self.records, run_id)

    @property
    def kept(self):
        return sorted(path.name for path in self.records.glob("*.setting"))


def test_a_claim_sets_and_puts_back(kernel):
    """Releasing twice is nothing more."""
    claim = kernel.claim()
    claim.acquire({kernel.a: "1", kernel.b: "2"})
    assert kernel.values == ("1", "2")
    claim.release()
    claim.release()
    assert (kernel.values, kernel.kept) == (("5", "7"), [])


def test_the_last_of_a_run_puts_back(kernel):
    """Two workers of a run on one host: the later value holds, and the first value of all comes back in the end."""
    first, second = kernel.claim(), kernel.claim()
    first.acquire({kernel.a: "1"})
    second.acquire({kernel.a: "2"})
    first.release()
    assert kernel.values[0] == "2"
    second.release()
    assert kernel.values[0] == "5"


def test_a_treatment_without_the_setting_has_the_old_value(kernel):
    """Also while another worker of the run still holds the trial before."""
    first, second = kernel.claim(), kernel.claim()
    first.acquire({kernel.a: "1"})
    second.acquire({kernel.a: None, kernel.b: None})
    assert kernel.values == ("5", "7")
    assert len(kernel.kept) == 1
    first.release()
    second.release()
    assert (kernel.values, kernel.kept) == (("5", "7"), [])


def test_two_runs_cannot_have_one_setting(kernel):
    """The second is told which run has it, and changes nothing."""
    first, second = kernel.claim("r1"), kernel.claim("r2")
    first.acquire({kernel.a: "1"})
    with pytest.raises(SettingError, match="run r1 on this host has set it: wait for its end"):
        second.acquire({kernel.b: "2", kernel.a: "2"})
    assert kernel.values == ("1", "7")
    assert try_values(kernel.records, kernel.a, ["3"]) == ("", "run r1 on this host has set it: wait for its end")
    first.release()
    assert kernel.values == ("5", "7")


def test_a_value_that_is_not_taken_leaves_all_as_it_was(kernel, monkeypatch):
    """Whatever was set before it."""
    claim = kernel.claim()
    (real, refuse) = (settings._write, {"bad"})

    def write(name, path, value):
        real(name, path, value)
        if value in refuse:
            raise SettingRefused(f"host setting {name}: no")

    monkeypatch.setattr(settings, "_write", write)
    with pytest.raises(SettingRefused):
        claim.acquire({kernel.a: "1", kernel.b: "bad"})
    assert (kernel.values, kernel.kept) == (("5", "7"), [])


def abandon(kernel, run_id="r1"):
    """Leave a setting as a run that was killed leaves it."""
    claim = kernel.claim(run_id)
    claim.acquire({kernel.a: "1"})
    for file in claim._held.values():
        os.close(file)  # as the kernel does with the files of a process that ends


def test_what_nobody_holds_is_put_back(kernel):
    """Of all runs or of a named one; a dry run only tells."""
    abandon(kernel)
    assert [one.name for one in restore_abandoned(kernel.records, dry_run=True)] == [kernel.a]
    assert restore_abandoned(kernel.records, run_id="other") == []
    assert kernel.values[0] == "1"
    assert [(one.run_id, one.problem) for one in restore_abandoned(kernel.records)] == [("r1", "")]
    assert (kernel.values[0], kernel.kept) == ("5", [])


def test_what_is_in_use_is_left_alone(kernel):
    """By a clean-up as by the start of another worker."""
    claim = kernel.claim()
    claim.acquire({kernel.a: "1"})
    assert restore_abandoned(kernel.records) == []
    assert kernel.values[0] == "1"
    claim.release()


def test_the_next_run_starts_from_the_old_value(kernel):
    """It does not take what a killed run left for what was there before."""
    abandon(kernel)
    claim = kernel.claim("r2")
    claim.acquire({kernel.a: "2"})
    claim.release()
    assert kernel.values[0] == "5"
    abandon(kernel)
    assert try_values(kernel.records, kernel.a, ["2"]) is None
    assert kernel.values[0] == "5"


def test_a_record_of_an_earlier_boot_says_nothing(kernel, monkeypatch):
    """The kernel has started with its own values since; what is no record is deleted, too."""
    with monkeypatch.context() as earlier:
        earlier.setattr(settings, "_boot_id", lambda: "earlier")
        abandon(kernel)
    (kernel.records / "x.setting").write_text("{")
    assert restore_abandoned(kernel.records) == []
    assert (kernel.values[0], kernel.kept) == ("1", [])


def test_what_cannot_be_put_back_keeps_its_record(kernel, monkeypatch):
    """It is told, and the next clean-up tries again."""
    abandon(kernel)

    def refuse(name, *_):
        raise SettingError(f"host setting {name}: read-only")

    with monkeypatch.context() as broken:
        broken.setattr(settings, "_write", refuse)
        assert "read-only" in restore_abandoned(kernel.records)[0].problem
    assert restore_abandoned(kernel.records)[0].problem == ""
    assert kernel.values[0] == "5"


class QuietGuard:
    """A guard in this process."""

    def __init__(self, kernel, run_id, wanted):
        self._claim = kernel.claim(run_id)
        self._claim.acquire(wanted)

    def release(self, _timeout_s):
        self._claim.release()
        return 0, ""


def test_what_others_do_meanwhile_is_told(kernel, monkeypatch):
    """A value that somebody else gives a setting, and runs that ran under our values, once."""
    monkeypatch.setattr(setting_switch, "_set", partial(QuietGuard, kernel))
    monkeypatch.setattr(setting_switch, "live_runs", lambda: frozenset({"r1", "r2"}))
    told = []
    switch = SettingSwitch("r1", told.append)
    for value in ("1", "2"):
        switch.know({kernel.a: value})
        assert switch.differs({kernel.a: value})
        switch.apply({kernel.a: value})
        assert not switch.differs({kernel.a: value})
    assert len(told) == 1
    assert told[0].endswith("their jobs ran under them, too: r2")
    kernel.set(a="9")
    switch.apply({})
    assert told[1:] == [f"host setting {kernel.a} was changed to '9' by somebody else while trials ran with '2'"]
    assert kernel.values[0] == "5"
    switch.release()
    assert len(told) == 2


def test_values_are_tried_before_a_run(kernel):
    """The first that is no choice is told with the nearest one, and the old value is there again."""
    kernel.set(a="one [two] three")
    assert try_values(kernel.records, kernel.a, ["three", "tree"]) == (
        "tree",
        "it is none of its values (did you mean 'three'?); one of: one, two, three",
    )
    assert kernel.values[0] == "two"


def test_what_a_host_lacks_is_told(kernel, tmp_path):
    """A file that is not there, one that is elsewhere, one of another tree by a link."""
    assert "there is no file" in unusable_reason(f"{kernel.a}x")
    assert "outside of /sys and /proc/sys" in unusable_reason("etc/passwd")
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert "outside of /sys and /proc/sys" in unusable_reason(str(tmp_path / "link").removeprefix("/"))
    assert unusable_reason(kernel.a) == ""


def test_a_preflight_touches_only_what_is_allowed(kernel, monkeypatch):
    """The master knows what is not allowed from the hello; the rest is tried."""
    monkeypatch.setattr("bench_worker.preflight.records_directory", lambda: kernel.records)
    needs = [SettingNeed(kernel.a, ["1"]), SettingNeed(f"{kernel.b}x", ["1"])]
    assert find_setting_problems(needs, []) == []
    [problem] = find_setting_problems(needs, [one.name for one in needs])
    assert (problem.name, problem.value) == (f"{kernel.b}x", "")
    assert problem.reason.startswith("there is no file")
    assert kernel.values == ("5", "7")
