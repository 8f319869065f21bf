"""The doctor on recorded hosts: each check sick and well, a check that breaks, and what the commands print."""

import json

import msgspec
import pytest
from msgspec.structs import replace
from places import ROOT
from recorded_host import RecordedHostFiles

import bench_worker.doctor
from bench_common.engine_traits import EngineLabel, use_engine_labels
from bench_common.requirements import DoctorNeeds
from bench_master.commands import doctor as command
from bench_worker.doctor import CHECKS, Check, HostSnapshot, Level, capture, run_checks
from bench_worker.doctor.base import ok
from bench_worker.engines.base import EngineStatus
from bench_worker.host.procfs import DiskSpace, read_processes
from bench_worker.queries import doctor as query

CPU = "/sys/devices/system/cpu"
CLOCK = "/sys/devices/system/clocksource/clocksource0"
GIB = 1024**3
ROOM = DiskSpace(100 * GIB, 50 * GIB, 1_000_000, 900_000)
CONTAINER = "ab" * 32

WELL = {
    "/proc/stat": "cpu 100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1\ncpu1 1 1 1 1\n",
    "/proc/loadavg": "0.05 0.1 0.1 1/99 1",
    "/proc/meminfo": "MemTotal: 8000000 kB\nMemFree: 7000000 kB\nMemAvailable: 7000000 kB\nSwapTotal: 0 kB\n",
    "/proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-1\n",
    "/proc/self/mountinfo": (
        "27 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    ),
    "/proc/cpuinfo": "model name : X\nflags : fpu\n",
    f"{CPU}/online": "0-1",
    f"{CPU}/cpu0/cpufreq/scaling_governor": "performance",
    f"{CPU}/intel_pstate/no_turbo": "1",
    f"{CLOCK}/current_clocksource": "tsc",
    f"{CLOCK}/available_clocksource": "tsc hpet acpi_pm",
    "/proc/7/stat": "7 (doctor) S 1 7 7 0 -1 0 0 0 0 0 50 10 0 0 20 0 1 0 100 0 5",
    "/proc/9/stat": "9 (my (odd) job) R 1 9 9 0 -1 0 0 0 0 0 50 10 0 0 20 0 1 0 100 0 5",
}
ENGINES = (
    EngineStatus("one", usable=True, version="1.2", details={"root": "/var/lib/one"}),
    EngineStatus("two", usable=True),
)


def scene_of(changes=None, *, after=None, spaces=None, **fields):
    """Return the scene of a healthy host with `changes` to its files, which were as `after` says at the end."""
    texts = {**WELL, **(changes or {})}
    texts = {path: text for path, text in texts.items() if text is not None}
    rooms = {"/srv": ROOM, "/var/lib/one": ROOM} | (spaces or {})

    def wait(_seconds):
        texts["/proc/stat"] = "cpu 150 0 100 950 0 0 0 0 0 0\ncpu0 1 1 1 1\ncpu1 1 1 1 1\n"
        texts.update(after or {})

    files = RecordedHostFiles(texts, {"/proc/self": "7"}, rooms)
    scene = capture(files, wait, directories=["/srv"])
    known = {
        "engines": lambda: ENGINES,
        "tools": lambda: {"sysbench": ["sysbench-cpu"]},
        "which": lambda program: f"/usr/bin/{program}",
        "writable": lambda directory: True,
    }
    return replace(scene, **{**known, **fields})


def found(check, scene):
    """Return the findings of the check of that name."""
    return [finding for finding in run_checks(scene) if finding.check == check]


def test_healthy_host_has_nothing_but_ok():
    """On a host as it should be, every check says ok."""
    findings = list(run_checks(scene_of()))
    assert {finding.check for finding in findings} == {check.name for check in CHECKS}
    assert [finding for finding in findings if finding.level is not Level.OK] == []


@pytest.mark.parametrize(
    ("check", "level", "changes", "word"),
    [
        ("CPU governor", "warning", {f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave"}, "cpupower"),
        ("CPU governor", "note", {f"{CPU}/cpu0/cpufreq/scaling_governor": None}, "hypervisor"),
        ("CPU turbo", "warning", {f"{CPU}/intel_pstate/no_turbo": "0"}, "no_turbo"),
        ("CPUs", "warning", {"/proc/self/status": "Cpus_allowed_list:\t1\n"}, "taskset"),
        ("load", "warning", {"/proc/loadavg": "1.50 1 1 1/9 1"}, "top"),
        ("load", "note", {"/proc/loadavg": None}, "unknown"),
        ("containers", "warning", {"/proc/9/cgroup": f"0::/x.slice/x-{CONTAINER}.scope"}, "cleanup-containers"),
        (
            "memory",
            "problem",
            {"/proc/meminfo": "MemTotal: 8000000 kB\nMemFree: 9 kB\nMemAvailable: 90000 kB"},
            "stop",
        ),
        (
            "memory",
            "warning",
            {"/proc/meminfo": "MemTotal: 8000000 kB\nMemFree: 9 kB\nMemAvailable: 900000 kB"},
            "stop",
        ),
        (
            "swap",
            "warning",
            {"/proc/meminfo": "MemTotal: 8000000 kB\nMemFree: 7000000 kB\nSwapTotal: 2000 kB\nSwapFree: 1000 kB"},
            "swapoff",
        ),
        ("clock source", "warning", {f"{CLOCK}/current_clocksource": "hpet"}, "echo tsc"),
        ("clock source", "problem", {f"{CLOCK}/current_clocksource": "jiffies"}, "echo tsc"),
        (
            "clock source",
            "warning",
            {f"{CLOCK}/current_clocksource": "acpi_pm", f"{CLOCK}/available_clocksource": "acpi_pm"},
            "dmesg",
        ),
        ("clock source", "note", {f"{CLOCK}/current_clocksource": None}, "unknown"),
    ],
)
def test_each_sickness_is_found_with_its_remedy(check, level, changes, word):
    """A host with one thing wrong gets one finding of the right gravity, with advice; the other checks stay ok."""
    findings = [finding for finding in run_checks(scene_of(changes)) if finding.level is not Level.OK]
    assert [(finding.check, finding.level) for finding in findings] == [(check, level)]
    assert word in findings[0].advice


def test_steal_is_measured_over_the_watch():
    """Steal during the watch counts, steal from before it does not."""
    before = {"/proc/stat": "cpu 100 0 100 800 0 0 0 9999\n"}
    sick = scene_of(before, after={"/proc/stat": "cpu 150 0 100 840 0 0 0 10009\n"})
    (finding,) = found("steal", sick)
    assert (finding.level, finding.value) == (Level.WARNING, 10.0)
    well = scene_of(before, after={"/proc/stat": "cpu 150 0 100 840 0 0 0 9999\n"})
    assert found("steal", well)[0].level is Level.OK


def test_busy_neighbour_is_named():
    """A process that uses CPU during the watch is named with its share of one CPU, whatever brackets it has."""
    scene = scene_of(after={"/proc/9/stat": "9 (my (odd) job) R 1 9 9 0 -1 0 0 0 0 0 90 20 0 0 20 0 1 0 100 0 5"})
    (finding,) = found("processes", scene)
    assert finding.level is Level.WARNING
    assert "my (odd) job (9) 50 %" in finding.finding


def test_own_work_is_not_a_neighbour():
    """The doctor's own CPU time, and that of what started it, is not held against the machine."""
    parent = {"/proc/5/stat": "5 (shell) S 1 5 5 0 -1 0 0 0 0 0 50 10 0 0 20 0 1 0 100 0 5"}
    own = {"/proc/7/stat": "7 (doctor) R 5 7 7 0 -1 0 0 0 0 0 99 50 0 0 20 0 1 0 100 0 5"}
    scene = scene_of(
        parent, after={**own, "/proc/5/stat": "5 (shell) S 1 5 5 0 -1 0 0 0 0 0 99 10 0 0 20 0 1 0 100 0 5"}
    )
    assert found("processes", scene)[0].level is Level.OK


def test_a_process_that_ended_is_skipped():
    """A process that ended between listing and reading gives nothing."""
    files = RecordedHostFiles({"/proc/12/stat": "12 (cut) S 1", "/proc/13/stat": ""})
    assert read_processes(files) == {}


@pytest.mark.parametrize(
    ("space", "level"),
    [
        (DiskSpace(100 * GIB, GIB // 10, 0, 0), "problem"),
        (DiskSpace(100 * GIB, GIB, 0, 0), "warning"),
        (DiskSpace(100 * GIB, 50 * GIB, 1_000_000, 500), "problem"),
        (DiskSpace(100 * GIB, 50 * GIB, 1_000_000, 50_000), "warning"),
        (DiskSpace(100 * GIB, 50 * GIB, 0, 0), "ok"),
    ],
)
def test_room_is_looked_at(space, level):
    """Bytes and inodes are both room; a file system without a fixed number of inodes does not lack them."""
    first, second = found("disk space", scene_of(spaces={"/srv": space}))
    assert first.level == level
    assert second.level is Level.OK
    assert "/var/lib/one" in second.finding


def test_directory_that_cannot_be_written_is_a_problem():
    """A working directory that is not ours to write is a problem; one that is missing too."""
    assert found("disk space", scene_of(writable=lambda _: False))[0].level is Level.PROBLEM
    assert found("disk space", scene_of(directories=["/nowhere"]))[0].level is Level.PROBLEM


def test_nobody_looks_where_an_engine_that_cannot_be_used_would_store():
    """Its directory may not be there."""
    gone = EngineStatus("two", usable=False, details={"root": "/nowhere"})
    assert "/nowhere" not in str(found("disk space", scene_of(engines=lambda: (*ENGINES, gone))))


def test_engine_that_does_not_answer_says_why():
    """An unusable engine comes with its reason and advice; it is graver when there is little else."""
    dead = EngineStatus("two", usable=False, reason="permission denied on its socket", advice="join its group")
    third = EngineStatus("three", usable=True)
    first, *rest = found("engine", scene_of(engines=lambda: (dead, third)))
    assert (first.level, first.advice) == (Level.WARNING, "join its group")
    assert "permission denied" in first.finding
    assert [finding.level for finding in rest] == ["ok", "note"]
    assert found("engine", scene_of(engines=lambda: (*ENGINES, dead)))[-1].level is Level.NOTE
    assert found("engine", scene_of(engines=lambda: (dead,)))[-1].level is Level.PROBLEM
    assert found("engine", scene_of(engines=tuple))[-1].level is Level.PROBLEM


def test_missing_tool_names_the_workloads():
    """A program that is not on PATH is a note with the workloads that need it: it makes no result noisier."""
    (finding,) = found("tools", scene_of(which=lambda _: None))
    assert finding.level is Level.NOTE
    assert "sysbench-cpu" in finding.finding


def test_a_tool_that_no_archive_has_comes_with_advice_of_its_own():
    """Nobody is told to install a package that does not exist, or warned of what cannot be helped."""
    advice = {"sysbench": "take it from elsewhere"}
    (finding,) = found("tools", scene_of(which=lambda _: None, advice=lambda: advice))
    assert (finding.level, finding.advice) == (Level.NOTE, "take it from elsewhere")


def test_check_that_breaks_is_reported_and_ends_no_other():
    """A check that raises becomes a warning with what it said; the others still run."""

    def fail(_host):
        yield ok("first")
        raise RuntimeError("no such kernel")

    findings = list(run_checks(scene_of(), [Check("broken", fail), *CHECKS[-1:]]))
    assert [finding.check for finding in findings] == ["broken", "broken", *["disk space"] * 2]
    assert findings[1].level is Level.WARNING
    assert "RuntimeError: no such kernel" in findings[1].finding


def test_host_that_hides_everything_breaks_no_check():
    """Where nothing can be read, every check still says something, and none breaks."""
    findings = list(run_checks(HostSnapshot(RecordedHostFiles(), directories=["/srv"])))
    assert {finding.check for finding in findings} == {check.name for check in CHECKS}
    assert not [finding for finding in findings if "this check failed" in finding.finding]


def test_every_finding_that_is_not_ok_says_what_to_do():
    """Advice is part of every note, warning and problem."""
    for scene in (
        scene_of(),
        HostSnapshot(RecordedHostFiles()),
        scene_of(engines=tuple, tools=dict, which=lambda _: None),
    ):
        for finding in run_checks(scene):
            assert finding.advice or finding.level is Level.OK, finding


def test_the_query_prints_json(monkeypatch):
    """`bench-worker --doctor` gives findings as plain JSON values with the agreed keys."""
    monkeypatch.setattr(bench_worker.doctor, "capture", lambda files, wait, directories: scene_of())
    options = query.Options(doctor_directory=())
    findings = json.loads(json.dumps(list(query.run(options))))
    assert {tuple(finding) for finding in findings} == {("check", "level", "finding", "advice", "value")}


FINDINGS = [
    {"check": "Python", "level": "ok", "finding": "3.11.2", "advice": "", "value": "3.11.2"},
    {"check": "load", "level": "warning", "finding": "high " * 30, "advice": "wait " * 30, "value": 9.0},
    {"check": "memory", "level": "problem", "finding": "none left", "advice": "add some", "value": 1},
]


def run_doctor(monkeypatch, findings, *, quiet=False, form="text", file=None, engine=()):
    asked = []

    def ask_worker(*flags, **_):
        asked.extend(flags)
        return findings

    monkeypatch.setattr(command, "query_worker", ask_worker)
    options = command.Options(file=file, directory=("/srv",), format=form, quiet=quiet, engine=engine)
    return command.run(options), asked


def test_labels_are_checked_too(monkeypatch, tmp_path):
    """They are names that the scenario may have, and the worker is told what they stand for."""
    path = tmp_path / "x.yaml"
    path.write_text("{name: a, engines: [new], job: {operations: [run], container: {image: i, command: 'true'}}}")
    label = EngineLabel("new", "crun", "/opt/new")
    found = {"check": "engine", "level": "ok", "finding": "new 1.8", "advice": "", "value": "1.8"}
    try:
        status, asked = run_doctor(monkeypatch, [found], file=str(path), engine=(label,))
    finally:
        use_engine_labels(())
    assert status == 0
    assert asked[-2:] == ["--engine", "new=crun:/opt/new"]


def test_table_fits_80_columns_and_puts_problems_first(monkeypatch, capsys):
    """The table is 80 columns wide, gravest first, with advice below each finding and a verdict at the end."""
    status, asked = run_doctor(monkeypatch, FINDINGS)
    lines = capsys.readouterr().out.splitlines()
    assert status == 3
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("problem  memory")
    assert "-> add some" in lines[1]
    assert lines[-2] == ""
    assert lines[-1] == "Not fit to measure: 1 problem to fix first."
    assert asked == ["--doctor", "--doctor-directory", "/srv"]


def test_a_scenario_limits_the_check_to_what_it_needs(monkeypatch, capsys, tmp_path):
    """With -f, engines and programs of other scenarios are left out, and what this one lacks is a problem."""
    file = tmp_path / "x.yaml"
    file.write_text("name: a\nengines: [docker, native]\njob: {workload: sysbench-oltp, params: {}}\nrepeats: 1\n")
    findings = [
        {"check": "load", "level": "ok", "finding": "load average 0.00", "advice": "", "value": 0.0},
        {"check": "engine", "level": "ok", "finding": "native 1", "advice": "", "value": "native"},
        {"check": "engine", "level": "note", "finding": "docker: no socket", "advice": "start it", "value": "docker"},
        {"check": "engine", "level": "warning", "finding": "podman: none", "advice": "install", "value": "podman"},
        {"check": "engine", "level": "note", "finding": "only one engine can be used", "advice": "x", "value": 1},
        {"check": "tools", "level": "ok", "finding": "sysbench: /bin/x", "advice": "", "value": "/bin/x"},
        {
            "check": "tools",
            "level": "note",
            "finding": "mariadbd is not on PATH: ",
            "advice": "y",
            "value": "mariadbd",
        },
        {"check": "tools", "level": "warning", "finding": "mbw is not on PATH: ", "advice": "z", "value": "mbw"},
    ]
    status, _ = run_doctor(monkeypatch, findings, form="json", file=str(file))
    shown = [(one["level"], one["value"]) for one in json.loads(capsys.readouterr().out)]
    assert shown == [
        ("ok", 0.0),
        ("ok", "native"),
        ("problem", "docker"),
        ("ok", "/bin/x"),
        ("problem", "mariadbd"),
    ]
    assert status == 3


def test_what_optional_jobs_alone_need_is_no_problem(monkeypatch, capsys, tmp_path):
    """They are skipped where it is missing; the run goes on, so the machine is fit to measure."""
    file = tmp_path / "x.yaml"
    jobs = "  a: {workload: mbw, optional: true}\n  b: {workload: sysbench-cpu}\n"
    file.write_text(f"name: a\nengines: [native]\nrepeats: 1\njobs:\n{jobs}")
    findings = [
        {"check": "tools", "level": "note", "finding": f"{name} is not on PATH: ", "advice": "y", "value": name}
        for name in ("mbw", "sysbench", "ab")
    ]
    run_doctor(monkeypatch, findings, form="json", file=str(file))
    shown = [(one["level"], one["value"]) for one in json.loads(capsys.readouterr().out)]
    assert shown == [("note", "mbw"), ("problem", "sysbench")]


@pytest.mark.parametrize(
    ("findings", "status", "verdict"),
    [
        (FINDINGS[:1], 0, "Fit to measure."),
        (FINDINGS[:2], 0, "Fit to measure, with 1 warning: results will be noisier than needed."),
        (FINDINGS, 3, "Not fit to measure: 1 problem to fix first."),
    ],
)
def test_exit_code_is_that_of_the_gravest(monkeypatch, capsys, findings, status, verdict):
    """Warnings leave the exit code at 0, a problem makes it 3, and the verdict says so in words."""
    assert run_doctor(monkeypatch, findings)[0] == status
    assert verdict in capsys.readouterr().out


def test_quiet_shows_what_needs_doing(monkeypatch, capsys):
    """With -q only problems and warnings are shown; the verdict is on everything."""
    run_doctor(monkeypatch, FINDINGS, quiet=True)
    printed = capsys.readouterr().out
    assert "Python" not in printed
    assert "memory" in printed
    run_doctor(monkeypatch, FINDINGS[:1], quiet=True)
    assert capsys.readouterr().out == "Fit to measure.\n"


def test_json_is_the_findings(monkeypatch, capsys):
    """--format json gives the findings as they are, with the same exit code."""
    assert run_doctor(monkeypatch, FINDINGS, form="json")[0] == 3
    assert json.loads(capsys.readouterr().out) == FINDINGS


def test_the_guide_knows_every_check():
    """docs/user-guide.rst names each."""
    page = (ROOT / "docs" / "user-guide.rst").read_text()
    assert [check.name for check in CHECKS if f"``{check.name}``" not in page] == []


def test_what_a_scenario_needs_and_an_engine_lacks_is_a_problem():
    """Of the usable engines alone; without a scenario, or where nothing is missing, the check says ok."""
    asked = []

    def missing(usable):
        asked.append(list(usable))
        return ["engine one: image 'x' is not on this host"]

    (one,) = found("requirements", scene_of(requirements=2, missing=missing))
    assert (one.level, one.finding) == (Level.PROBLEM, "engine one: image 'x' is not on this host")
    assert asked == [["one", "two"]]
    for scene in (scene_of(), scene_of(requirements=2, missing=lambda _usable: [])):
        (one,) = found("requirements", scene)
        assert one.level == Level.OK


def test_less_disk_than_the_jobs_take_is_a_problem():
    """Where an engine keeps what they write; a stats file is small."""
    findings = found("disk space", scene_of(needed_bytes=60 * GIB))
    assert [(one.level, one.finding) for one in findings] == [
        (Level.OK, "/srv: 50 GiB free"),
        (Level.PROBLEM, "/var/lib/one: 50 GiB free, and the jobs of the scenario take about 60 GiB"),
    ]


def test_the_needs_of_a_scenario_travel_to_the_worker():
    """Images and networks of its containers by engine, each once, and the disk that its jobs take."""
    needs = command.scenario_needs("vm-docker-bench/oltp")
    assert needs is not None
    flag, text = needs.flags
    assert flag == "--doctor-needs"
    sent = msgspec.json.decode(text, type=DoctorNeeds)
    assert {need.image for need in sent.requirements} >= {"weighbridge/mariadb"}
    assert len(sent.requirements) == len(set(sent.requirements))
    assert sent.disk_bytes > GIB / 10
