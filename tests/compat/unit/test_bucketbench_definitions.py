"""bucketbench's definitions: whatever is in one is understood, or named with its place; nothing goes unsaid."""

import io
import sys

import places
import pytest
import yaml
from jsonschema import Draft202012Validator

from bench_common.errors import ScenarioError, UsageError
from bench_common.treatment import OPERATIONS
from bench_features.compat.bucketbench_scenarios import COMMANDS, DRIVERS
from bench_master.cli import run_command_line
from bench_master.scenario import load_scenario, scenario_schema
from bench_master.scenario.dialects import load_scenario_or_definition, scenario_text
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.model import DefinitionFlags
from bench_master.scenario.yaml_tree import Source
from bench_workloads.script import job_script

DATA = places.DATA / "bucketbench"
ENGINES = ("containerd", "cri", "crun", "docker", "docker-cli", "native", "runc", "youki")

HEAD = "name: a\nimage: weighbridge/base\n"
DOCKER = "drivers: [{type: Docker, threads: 2, iterations: 3}]\n"


@pytest.fixture(autouse=True)
def every_engine(monkeypatch):
    """A definition is read in the same way wherever the engines are installed."""
    monkeypatch.setattr("bench_master.scenario.format.engine_names", lambda: ENGINES)


@pytest.fixture
def load(tmp_path):
    """Return what a definition of this text amounts to."""

    def loaded(text, **options):
        path = tmp_path / "old.yaml"
        path.write_text(text)
        return load_scenario_or_definition(str(path), **options)

    return loaded


def problems(name):
    """Return what is wrong with a file of the tests, each with line and column."""
    with pytest.raises(ScenarioError) as caught:
        load_scenario_or_definition(str(DATA / name))
    return [str(problem).removeprefix(f"{DATA / name}:") for problem in caught.value.problems]


def test_each_driver_is_a_job_under_its_engine_with_its_own_threads_and_iterations():
    """The eight drivers of a file, one of them twice, become nine treatments in the order of the file."""
    scenario = load_scenario_or_definition(str(DATA / "whole.yaml"))
    assert [
        (one.labels["job"], one.engine, one.concurrency, one.iterations, one.operation_count, one.run_seconds)
        for one in scenario.treatments
    ] == [
        ("Docker", "docker", 2, 4, None, None),
        ("DockerCLI", "docker-cli", 3, 5, None, None),
        ("Containerd", "containerd", 1, 6, None, None),
        ("Ctr", "containerd", 1, 7, None, None),
        ("CRI", "cri", 2, 8, None, None),
        ("Runc", "runc", 4, 9, None, None),
        ("CRun", "crun", 4, 10, None, None),
        ("Youki", "youki", 4, 11, None, None),
        ("Docker-2", "docker", 1, 12, None, None),
    ]
    assert scenario.order == "as-written"
    assert {one.labels["job"] for one in scenario.treatments} >= {driver.name for driver in DRIVERS}


def test_image_command_and_log_driver_are_carried_over():
    """The command is split at its blanks; options of a log driver belong to the driver that has it."""
    first, second, *others = load_scenario_or_definition(str(DATA / "whole.yaml")).treatments
    of_image = [one for one in (first, second, *others) if one.engine not in ("runc", "crun", "youki")]
    assert {one.container.image for one in of_image} == {"weighbridge/base"}
    assert {one.container.command for one in of_image} == {("sleep", "30")}
    assert first.container.log_driver == "json-file"
    assert first.container.log_options == {"max-size": "1m", "max-file": "2"}
    assert (second.container.log_driver, second.container.log_options) == ("none", {})
    assert {one.container.log_driver for one in others} == {None}


def test_a_bundle_is_carried_over():
    """Its config.json has the command, as in bucketbench; drivers that cannot use it get a note."""
    scenario = load_scenario_or_definition(str(DATA / "whole.yaml"))
    bundled = [one.container for one in scenario.treatments if one.engine in ("runc", "crun", "youki")]
    assert len(bundled) == 3
    said = next(note for note in scenario.untranslated if "'rootfs' is not carried over under" in note)
    assert {(one.rootfs, one.image, one.command) for one in bundled} == {("/srv/bundles/base", None, None)}
    assert "under Ctr: " in said


def test_aliases_are_case_insensitive():
    """bucketbench folds the case of commands, and reads Go's spellings of true and of nothing."""
    scenario = load_scenario_or_definition(str(DATA / "aliases.yaml"))
    known = [COMMANDS[word] for word in ("start", "metrics", "pause", "resume", "stats", "kill", "wait", "erase")]
    kinds = [operation.kind for operation in scenario.treatments[0].job.operations]
    assert kinds == [kind for kind in known if kind in OPERATIONS]
    assert scenario.name == "2026"
    assert scenario.treatments[0].container.command is None
    assert [one.labels["job"] for one in scenario.treatments] == ["Docker", "Docker-2"]


@pytest.mark.parametrize(("word", "kind"), [pair for pair in COMMANDS.items() if pair[1] in OPERATIONS])
def test_a_command_is_one_operation(load, word, kind):
    """Each of bucketbench's words, and no other."""
    before = {"run": "", "unpause": "run, pause, "}.get(kind, "run, ")
    operation = load(f"{HEAD}{DOCKER}commands: [{before}{word}]\n").treatments[0].job.operations[-1]
    assert operation.kind == kind
    assert operation.seconds == (30.0 if kind == "stop" else None)


def test_errors_have_their_place_and_the_right_spelling():
    """All errors of a file at once, including keys that bucketbench would ignore."""
    found = problems("typos.yaml")
    expected = [
        "1:1: unknown key 'nam' in the bucketbench definition (did you mean 'name'?)",
        "1:1: key 'image' is missing in the bucketbench definition",
        "2:1: unknown key 'comand' in the bucketbench definition (did you mean 'command'?)",
        "4:11: unknown driver 'Dokcer' (did you mean 'Docker'?)",
        "5:5: unknown key 'thread' in the driver (did you mean 'threads'?)",
        "6:17: '0': expected a whole number, at least 1",
        "7:5: unknown key 'logdriver' in the driver (did you mean 'logDriver'?)",
        "9:14: '2': expected a whole number",
        "10:17: '1.5': expected a whole number",
        "11:18: 'perhaps': expected true or false",
        "12:5: unknown key 'cgrouppath' in the driver (did you mean 'cgroupPath'?)",
        "13:5: 'Docker': expected a driver",
        "15:5: unknown command 'rum' (did you mean 'run'?)",
        "17:5: unknown command 'wiat' (did you mean 'wait'?)",
    ]
    for line in expected:
        assert any(problem.startswith(line) for problem in found), line
    assert len(found) == len(expected)


def test_an_impossible_order_of_commands_is_refused():
    """bucketbench runs it, fails in every iteration and prints a rate."""
    assert problems("order.yaml") == [
        "6:5: 'stop' cannot work here: the container is not created; put 'create' or 'run' before it",
        "7:5: 'run' cannot work here: the container has ended; a job has one container: create it once",
        "8:5: 'run' cannot work here: the container is running; a job has one container: create it once",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEAD}{DOCKER}", "key 'commands' is missing"),
        (f"{HEAD}commands: [run]\n", "key 'drivers' is missing"),
        (f"{HEAD}drivers: []\ncommands: [run]\n", "3:10: an empty list"),
        (f"{HEAD}drivers: [{{threads: 1, iterations: 1}}]\ncommands: [run]\n", "3:11: key 'type' is missing"),
        (f"{HEAD}drivers: [{{type: Docker, iterations: 1}}]\ncommands: [run]\n", "key 'threads' is missing"),
        (f"{HEAD}{DOCKER}commands: []\n", "4:11: an empty list"),
        (f"{HEAD}{DOCKER}commands: run\n", "4:11: 'run': expected a list"),
        (f"name: a\nimage: -x\n{DOCKER}commands: [run]\n", "2:8: '-x': expected an image"),
    ],
)
def test_missing_and_empty_values_are_refused(load, text, said):
    """bucketbench panics, or runs nothing."""
    with pytest.raises(ScenarioError, match=r"old\.yaml") as caught:
        load(text)
    assert said in str(caught.value)


def test_keys_that_bucketbench_ignores_are_noted():
    """A file that works there works here; without a name it has that of the file."""
    scenario = load_scenario_or_definition(str(DATA / "stray.yaml"))
    assert scenario.name == "stray"
    assert scenario.treatments[0].container.command == ("sleep", "'a", "b'")
    for line, words in {
        2: "'entrypoint' is not a key of a bucketbench definition",
        3: "'command' is split at blanks",
        4: "'detached: false' has no effect",
        7: "'clientpath' has no effect under Docker",
        10: "'logOpts' has no effect without 'logDriver'",
        11: "'statsIntervalSec' has no effect under Docker",
        12: "'color' is not a key of a bucketbench driver",
    }.items():
        assert any(note.startswith(f"{DATA / 'stray.yaml'}:{line}: {words}") for note in scenario.untranslated), words
    assert len(scenario.untranslated) == 7
    assert set(scenario.untranslated) <= set(scenario.notes)


def test_stop_is_what_bucketbench_does_under_each_driver(load):
    """30 s, 10 s and SIGKILL at once are three measurements that cannot be compared: a note says so."""
    drivers = ", ".join(f"{{type: {driver.name}, threads: 1, iterations: 1}}" for driver in DRIVERS)
    scenario = load(f"{HEAD}drivers: [{drivers}]\ncommands: [run, stop, remove]\n")
    graces = {one.labels["job"]: one.job.operations[1].seconds for one in scenario.treatments}
    assert graces == {**dict.fromkeys((driver.name for driver in DRIVERS), 0.0), "Docker": 30.0, "DockerCLI": 10.0}
    [said] = [note for note in scenario.untranslated if "'stop' is" in note]
    assert "old.yaml:4: 'stop' is SIGTERM, and SIGKILL after 30s under Docker; " in said
    assert "SIGKILL at once under Containerd, Ctr, CRI, Runc, CRun, Youki, as in bucketbench, so its times" in said
    assert said.endswith("cannot be compared; --stop-grace TIME makes it the same under every driver")
    runtimes = load(f"{HEAD}drivers: [{{type: CRun, threads: 1, iterations: 1}}]\ncommands: [run, kill]\n")
    assert runtimes.untranslated[-1].endswith(
        "'stop' is SIGKILL at once under CRun, as in bucketbench (see --stop-grace)"
    )
    usual = load(f"{HEAD}drivers: [{{type: DockerCLI, threads: 1, iterations: 1}}]\ncommands: [run, stop]\n")
    assert usual.untranslated == ()


def test_one_grace_period_for_all_is_an_option_with_a_note(load):
    """`--stop-grace` makes `stop` the same under each, and the note says what bucketbench would do."""
    drivers = "drivers: [{type: Docker, threads: 1, iterations: 1}, {type: Runc, threads: 1, iterations: 1}]"
    for grace, seconds, meaning in (("3s", 3.0, "SIGTERM, and SIGKILL after 3s"), ("0s", 0.0, "SIGKILL at once")):
        scenario = load(f"{HEAD}{drivers}\ncommands: [run, stop]\n", flags=DefinitionFlags(grace=grace))
        assert {one.job.operations[1].seconds for one in scenario.treatments} == {seconds}
        [said] = [note for note in scenario.untranslated if "'stop' is" in note]
        assert f"'stop' is {meaning} under every driver (--stop-grace); in bucketbench SIGTERM, and" in said
        assert said.endswith("SIGKILL after 30s under Docker; SIGKILL at once under Runc")


def test_a_wait_has_a_long_timeout(load):
    """bucketbench has no timeout; a command that runs for minutes does not fail here."""
    assert load(f"{HEAD}{DOCKER}commands: [run, wait, remove]\n").treatments[0].timeout_s == 600
    assert load(f"{HEAD}{DOCKER}commands: [run, remove]\n").treatments[0].timeout_s == 60


def test_legacy_is_a_sweep_from_one_thread_to_all(load):
    """Each driver has its own."""
    drivers = "{type: Docker, threads: 3, iterations: 5}, {type: Runc, threads: 1, iterations: 2}"
    scenario = load(f"{HEAD}drivers: [{drivers}]\ncommands: [run, remove]\n", flags=DefinitionFlags(legacy=True))
    assert [(one.engine, one.concurrency, one.iterations) for one in scenario.treatments] == [
        ("docker", 1, 5),
        ("docker", 2, 5),
        ("docker", 3, 5),
        ("runc", 1, 2),
    ]


def test_stats_of_the_command_line_start_anew_with_a_note(load):
    """DockerCLI keeps one client for all readings there; here each is a separate operation."""
    drivers = "[{type: DockerCLI, threads: 1, iterations: 1, streamStats: true}]"
    scenario = load(f"{HEAD}drivers: {drivers}\ncommands: [run, stats, remove]\n")
    (cell,) = (one for one in scenario.treatments if one.engine == "docker-cli")
    assert [(one.kind, one.seconds) for one in job_script(cell)] == [("run", None), ("stats", 1.0), ("remove", None)]
    assert any(
        "'streamStats' of DockerCLI runs `docker stats` for each reading" in note for note in scenario.untranslated
    )


def test_overhead_is_compared_with_the_first_driver_at_the_same_threads(load):
    """Docker with two threads against Containerd with two, as in bucketbench's table; control groups stay."""
    drivers = "[{type: Containerd, threads: 2, iterations: 1}, {type: Docker, threads: 2, iterations: 1}]"
    flags = DefinitionFlags(legacy=True, overhead=True)
    overhead = load(f"{HEAD}drivers: {drivers}\ncommands: [run, remove]\n", flags=flags).overhead
    assert overhead.baseline == {"engine": "containerd", "job": "Containerd"}
    overhead = load_scenario_or_definition(str(DATA / "whole.yaml"), flags=DefinitionFlags(overhead=True)).overhead
    assert overhead.baseline == {"engine": "docker", "job": "Docker"}
    assert overhead.cgroups.keys() == {"docker", "containerd"}


def test_flags_of_definitions_are_refused_for_a_scenario(load):
    """A scenario has a matrix in place of the flag, and its own grace period."""
    with pytest.raises(UsageError, match=r"--stop-grace applies to bucketbench definitions only; write \{stop: 3s\}"):
        load("name: a\njob: {operations: [sleep: 1s]}\n", flags=DefinitionFlags(grace="3s"))
    with pytest.raises(
        UsageError, match=r"--legacy applies to bucketbench definitions only; .*concurrency: \[1, 2, 4\]"
    ):
        load("name: a\njob: {operations: [sleep: 1s]}\n", flags=DefinitionFlags(legacy=True))


def test_a_client_is_the_workers_own():
    """Another program or socket than the usual one is not carried over; the usual one needs no note."""
    path = str(DATA / "whole.yaml")
    said = [
        note.removeprefix(f"{path}:")
        for note in load_scenario_or_definition(path).untranslated
        if "'clientpath'" in note
    ]
    assert [note.split(": a scenario")[0] for note in said] == [
        "19: 'clientpath' of DockerCLI is not carried over",
        "24: 'clientpath' of Containerd is not carried over",
        "31: 'clientpath' of CRI is not carried over",
    ]
    assert "the worker uses the 'docker' on its PATH" in said[0]
    assert "the worker uses the socket of its host" in said[1]


def test_only_the_named_drivers_run(load):
    """In the order of the file, case-insensitive; a note lists the others."""
    path = str(DATA / "whole.yaml")
    scenario = load_scenario_or_definition(path, flags=DefinitionFlags(drivers=("docker-2", "Crun")))
    assert [one.labels["job"] for one in scenario.treatments] == ["CRun", "Docker-2"]
    assert f"{path}: not selected by --drivers: Docker, DockerCLI, Containerd" in scenario.untranslated[0]
    assert not any("Containerd is" in note or "youki" in note for note in scenario.untranslated)
    with pytest.raises(UsageError, match=r"no driver 'Runcc' \(did you mean 'Runc'\?\); the drivers are: Docker,"):
        load_scenario_or_definition(path, flags=DefinitionFlags(drivers=("Runcc",)))
    with pytest.raises(UsageError, match="--drivers applies to bucketbench definitions only"):
        load("name: a\njob: {operations: [sleep: 1s]}\n", flags=DefinitionFlags(drivers=("Docker",)))


def test_a_scenario_is_loaded_as_usual():
    """A file that is no definition goes to the scenario loader, with all of its errors."""
    assert load_scenario_or_definition("quickstart").treatments == load_scenario("quickstart").treatments
    assert load_scenario_or_definition("quickstart").untranslated == ()
    assert load_scenario_or_definition("quickstart").origin is None
    assert load_scenario_or_definition(str(DATA / "docker.yaml")).origin.tool == "bucketbench"


def test_set_applies_to_the_translated_scenario(load):
    """So a definition runs with more repeats, or on another network, without conversion."""
    scenario = load(
        f"{HEAD}{DOCKER}commands: [run, remove]\n",
        overrides=["repeats=6", "container.network=none", "jobs.Docker.iterations=9"],
    )
    assert scenario.repeats == (6,)
    assert scenario.treatments[0].container.network == "none"
    assert scenario.treatments[0].iterations == 9


@pytest.mark.parametrize(
    "flags", [DefinitionFlags(), DefinitionFlags(legacy=True), DefinitionFlags(overhead=True, grace="3s")]
)
@pytest.mark.parametrize("name", ["whole.yaml", "aliases.yaml", "stray.yaml", "docker.yaml"])
def test_a_converted_definition_gives_the_same_plan(name, flags):
    """Treatments, repeats and order of the written scenario are those of the direct run."""
    direct = load_scenario_or_definition(str(DATA / name), flags=flags)
    text, lost = scenario_text(str(DATA / name), flags)
    converted = parse_scenario(Source("new.yaml", text))
    for field in ("name", "treatments", "repeats", "warmup", "order", "seed", "document"):
        assert getattr(converted, field) == getattr(direct, field), field
    assert lost == direct.untranslated
    comments = " ".join(line.strip("# ") for line in text.splitlines() if line.lstrip().startswith("#"))
    assert all(note in comments for note in lost)


@pytest.mark.parametrize(
    "word",
    ["no", "~", "1e3", "a: b", "# x", "é\u2028\u0007", "\U0001f6a2", '"', "\\", "- x", "a\tb", "{x}", "*a", "x:"],
)
def test_any_text_survives_the_conversion(load, tmp_path, word):
    """For any characters in a name, the written file has the same text."""
    escaped = "".join(f"\\U{ord(letter):08x}" for letter in word)
    text = f'name: "{escaped}"\nimage: a\n{DOCKER}commands: [run, remove]\n'
    assert load(text).name == word
    written, _ = scenario_text(str(tmp_path / "old.yaml"))
    assert parse_scenario(Source("new.yaml", written)).name == word


def test_only_a_definition_is_converted():
    """A scenario needs no conversion."""
    with pytest.raises(UsageError, match="quickstart: neither a bucketbench definition"):
        scenario_text("quickstart")


@pytest.mark.parametrize("name", ["whole.yaml", "aliases.yaml", "stray.yaml", "docker.yaml", "runtimes.yaml"])
def test_a_converted_file_is_the_same_for_every_reader(name):
    """An editor with the schema, and a YAML 1.1 reader, read the same values."""
    text, _ = scenario_text(str(DATA / name))
    document = yaml.safe_load(text)
    assert list(Draft202012Validator(scenario_schema()).iter_errors(document)) == []
    assert document == load_scenario_or_definition(str(DATA / name)).document


def test_a_definition_from_standard_input_is_converted(capsys, monkeypatch):
    """As that of a file is, though a pipe can be read once."""
    path = places.DATA / "bucketbench" / "docker.yaml"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    shown = []
    for place in ("-", str(path)):
        assert run_command_line(["convert-scenario", place]) == 0
        shown.append([line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")])
    assert shown[0] == shown[1]
