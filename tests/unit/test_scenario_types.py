"""Values are what their author meant, or are refused with what to write instead; and every error is at its place."""

import re

import msgspec
import pytest

from bench_common.errors import ScenarioError
from bench_common.job_kind import read_job
from bench_common.treatment import ContainerSettings, Guest, Lifecycle, Mount, OpenLoad, Treatment
from bench_master.scenario.format import OPEN_CONCURRENCY
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source

HEAD = "name: a\nengines: [native]\n"
SLEEP = "job: {operations: [sleep: 1s]}\n"


def load(text):
    """Return the scenario of a text."""
    return parse_scenario(Source("s.yaml", text))


def problems(text):
    """Return everything that is wrong with a text."""
    with pytest.raises(ScenarioError) as caught:
        load(text)
    return [str(problem) for problem in caught.value.problems]


def env_of(written):
    """Return what an environment variable becomes when `written` stands in the file."""
    text = f"name: a\njob:\n  operations: [create]\n  container:\n    image: i\n    env:\n      X: {written}\n"
    return load(text).treatments[0].container.env["X"]


@pytest.mark.parametrize(
    "written",
    [
        "no",
        "yes",
        "on",
        "12:30",
        "1e3",
        "010",
        "1_000",
        "null",
        "~",
        "true",
        "1.10",
        "0x1F",
        "2001-01-01",
        "+1",
        ".5",
    ],
)
def test_text_stays_what_was_written(written):
    """Where text is wanted, YAML 1.1 guesses nothing."""
    assert env_of(written) == written


@pytest.mark.parametrize(
    ("written", "text"), [('""', ""), ("", ""), ("'a b'", "a b"), ('"\\t"', "\t"), ("a # b", "a")]
)
def test_text_may_be_quoted_or_empty_where_that_makes_sense(written, text):
    """Quotes and comments are YAML's, what is inside is the author's; a variable may be empty."""
    assert env_of(written) == text


@pytest.mark.parametrize(("written", "number"), [("1000", 1000), ("1e3", 1000), ("5.0", 5)])
def test_whole_numbers(written, number):
    """A whole number may be written as JSON writes it."""
    assert load(f"{HEAD}{SLEEP}iterations: {written}\n").treatments[0].iterations == number


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("010", "some YAML readers take a leading zero for base 8; write 10 or 8"),
        ("09", "write 9"),
        ("1_000", "write it without underscores, 1000"),
        ("0x10", "write 16"),
        ("+5", "write it without the sign, 5"),
        ("12:30", "write a duration as 12m30s"),
        ('"5"', "write it without quotes"),
        ("1.5", "'1.5': expected a whole number, at least 1"),
        ("0", "'0': expected a whole number, at least 1"),
        ("1e999", "expected a whole number"),
        ("five", "'five': expected a whole number"),
        ("", "nothing: expected a whole number"),
        ("[5]", "a list: expected a whole number"),
        ("9999999999999999999999999999999999999999", "expected a whole number"),
    ],
)
def test_what_is_no_clear_whole_number_is_refused(written, said):
    """What two readers could take for two numbers is refused with what to write, at its line and column."""
    (problem,) = problems(f"{HEAD}{SLEEP}iterations: {written}\n")
    assert problem.startswith("s.yaml:4:")
    assert said in problem


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("yes", "write true"),
        ("no", "write false"),
        ("on", "write true"),
        ("False", "write false, in lower case"),
        ('"true"', "write true, in lower case and without quotes"),
        ("1", "write true"),
        ("maybe", "'maybe': expected true or false"),
    ],
)
def test_truth_is_true_or_false(written, said):
    """YAML 1.1's other truth values are refused with the right one."""
    (problem,) = problems(f"{HEAD}{SLEEP}container: {{init: {written}}}\n")
    assert said in problem


@pytest.mark.parametrize(
    ("key", "written", "said"),
    [
        ("timeout", "12:30", "a duration has units, not colons (did you mean '12m30s'?)"),
        ("timeout", "12:30", "s.yaml:4:10: '12:30'"),
        ("timeout", "010", "a leading zero"),
        ("timeout", "0", "expected a duration such as 90s or 1h30m, more than 0s and at most 1d"),
        ("timeout", "2d", "at most 1d"),
        ("run_seconds", "5 minutes", "unknown unit 'minutes'"),
        ("sampling_interval", "10ms", "at least 100ms"),
        ("container", "{memory: 512}", "'512': expected a size such as 512MiB, at least 1MiB"),
        ("container", "{memory: 512mb}", "'MiB' for powers of 1024 or 'MB' for powers of 1000"),
        ("container", "{cpus: 0}", "more than 0"),
        ("container", "{cpuset: 0-x}", "a list of CPUs such as 0-1,4"),
        ("container", "{network: }", "empty; expected a network"),
        ("container", "{ulimits: {nofiles: 5}}", "'nofiles' cannot be a key here"),
        ("container", "{ulimits: {nofile: 10:5}}", "the soft limit exceeds the hard limit, 5"),
        ("container", "{ulimits: {nofile: -1:5}}", "the soft limit exceeds the hard limit, 5"),
        ("container", "{ulimits: {nofile: unlimited}}", "'unlimited': expected a limit such as 1024"),
        ("container", "{device_read_bps: {sda: 1MiB}}", "'sda' cannot be a key here"),
        ("container", "{security_options: [privileged]}", "unknown security option 'privileged'"),
        ("container", "{cap_add: [NET_ADMN]}", "unknown capability 'NET_ADMN' (did you mean 'NET_ADMIN'?)"),
        (
            "container",
            "{cap_add: [SYS_ADMIN]}",
            "capabilities that give access to the host, such as SYS_ADMIN, are not available",
        ),
        ("container", "{cap_add: [CHOWN], cap_drop: [KILL, CHOWN]}", "CHOWN is in 'cap_drop' too"),
        ("container", "{blkio_weight: 5}", "at least 10"),
        ("container", "{pids: 0}", "at least 1"),
        ("container", "{image: -v}", "'-v': expected an image"),
        ("container", "{command: 'a \"b'}", "no closing quotation"),
        ("container", "{command: []}", "an empty list: expected a command"),
        ("container", "{command: ['']}", "cannot be empty"),
        ("container", '{command: ["a\\0b"]}', "NUL"),
        ("container", "{env: {A=B: c}}", "'A=B' cannot be a key here"),
        ("container", "{storage: [{target: /x}]}", "'volume', 'host', 'data_container' or 'tmpfs' is missing"),
        (
            "container",
            "{storage: [{volume: va, host: /x, target: /x}]}",
            "'host' and 'volume' are mutually exclusive",
        ),
        ("container", "{storage: [{host: srv, target: /x}]}", "'srv': expected an absolute path"),
        *(
            ("container", f"{{storage: [{{host: , target: {path}}}]}}", "expected an absolute path without . and ..")
            for path in ("/a/../../etc", "/..", "/a/.", "/./a", "a", "/")
        ),
        ("container", "{storage: [{tmpfs: 1k, target: /x}]}", "at least 4KiB"),
        ("engines", "docker", "a list, each item"),
        ("engines", "[]", "an empty list"),
        ("engines", "[dokcer]", "unknown engine 'dokcer' (did you mean 'docker'?)"),
        ("engines", "[native, native]", "'native' is in this list twice"),
        ("environments", "['a b']", "'a b': expected an environment"),
        ("order", "interleave", "unknown order 'interleave' (did you mean 'interleaved'?)"),
        ("seed", "-1", "at least 0"),
        ("thresholds", "[jobs.failed]", "is not of the form"),
        ("thresholds", "[operations.slep.p95_s < 1]", "no treatment has operation 'slep' (did you mean 'sleep'?)"),
        ("thresholds", "[overhead.cpu_s < 1]", "the scenario does not measure overhead; add 'overhead: true'"),
        ("thresholds", "[metrics.cpu_user.mean < 1]", "the jobs do not tell cpu_user; add 'cost: true'"),
        ("thresholds", "[metrics.x.median < 1]", "no treatment has metric 'x'; the names are: none"),
        (
            "thresholds",
            "[jobs.failed == 0 where engin=native]",
            "no treatment has a label 'engin' (did you mean 'engine'?)",
        ),
        ("thresholds", "[jobs.failed == 0 where engine=docker]", "no treatment matches its labels"),
        ("thresholds", "[engine=docker not slower by 5%]", "no treatment matches its labels"),
        ("thresholds", "[not slowr by 5%]", "unknown word 'slowr' (did you mean 'slower'?)"),
        ("thresholds", "[engine=native same]", "there is only one treatment: add an engine or a value"),
    ],
)
def test_wrong_values_are_refused(key, written, said):
    """Each wrong value is refused at its place, with what was expected and the nearest right spelling."""
    head = HEAD if key != "engines" else "name: a\n# engines\n"
    (problem,) = problems(f"{head}{SLEEP}{key}: {written}\n")
    assert said in problem
    assert problem.startswith("s.yaml:4:")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nmae: a\n" + SLEEP, "s.yaml:1:1: unknown key 'nmae' in the scenario (did you mean 'name'?)"),
        ("job: {operations: [sleep: 1s]}\n", "s.yaml:1:1: key 'name' is missing in the scenario"),
        (HEAD, "s.yaml:1:1: 'job' or 'jobs' is missing: add the job to run"),
        (
            HEAD + SLEEP + "jobs: {a: {operations: [sleep: 1s]}}\n",
            "s.yaml:4:1: 'jobs' and 'job' are mutually exclusive",
        ),
        (HEAD + SLEEP + "iterations: 1\nrun_seconds: 5\n", "s.yaml:5:1: 'run_seconds' and 'iterations' are mutually"),
        (HEAD + "job: {}\n", "s.yaml:3:6: 'operations', 'workload' or 'objects' is missing"),
        (HEAD + "jobs: {}\n", "s.yaml:3:7: empty; expected jobs by label"),
        (HEAD + "jobs: {a b: {operations: [sleep: 1s]}}\n", "s.yaml:3:8: 'a b' cannot be a key here"),
        (HEAD + "job: {operations: [sleep: 1s], params: {a: 1}}\n", "s.yaml:3:32: 'params' requires"),
        (HEAD + "job: {workload: sysbench-cp}\n", "s.yaml:3:17: unknown workload 'sysbench-cp' (did you mean 'sysb"),
    ],
)
def test_wrong_shapes_are_refused(text, said):
    """Unknown, missing and contradicting keys are refused where they stand."""
    assert any(problem.startswith(said) for problem in problems(text))


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ("{thread: 1}", "s.yaml:5:12: unknown parameter 'thread' of sysbench-cpu (did you mean 'threads'?)"),
        ("{num-thread: 1}", "s.yaml:5:12: unknown parameter 'num-thread' of sysbench-cpu"),
        ("{threads: 0}", "s.yaml:5:21: '0': expected a whole number, at least 1"),
        ("{threads: many}", "s.yaml:5:21: 'many': expected a whole number"),
        ("{time: 12:30}", "s.yaml:5:18: '12:30': a duration has units"),
        ("{time: [1]}", "s.yaml:5:18: a list: expected a parameter's value"),
        ("{percentile: 42}", "s.yaml:5:24: unknown value of 'percentile' '42'"),
        ("{time: 0}", "rejects its parameters: sysbench-cpu: time and events are both 0"),
    ],
)
def test_parameters_are_those_of_the_workload(params, said):
    """A guest job's parameters have the types and bounds that its workload declares."""
    (problem,) = problems(f"{HEAD}job:\n  workload: sysbench-cpu\n  params: {params}\n")
    assert said in problem


def test_all_problems_of_a_file_are_said_at_once_and_in_order():
    """Problems of values, shapes, orders and cells of one file come together, sorted by place."""
    found = problems(
        "name: a\n"
        "enginse: [docker]\n"
        "repeats: 0\n"
        "jobs:\n"
        "  a: {operations: [start]}\n"
        "  b: {workload: sysbench-cpu, params: {tiem: 1}}\n"
        "  c: {operations: [create, remove]}\n"
        "container: {memory: 5}\n"
        "thresholds: [jobs.faild == 0]\n"
    )
    assert [problem.split(":")[1] for problem in found] == ["2", "3", "5", "6", "7", "8", "9"]


def test_a_refused_value_causes_no_second_complaint():
    """An image that is there but wrong is wrong once; it is not missing as well."""
    found = problems("name: a\njob: {operations: [create], container: {image: -x}}\n")
    assert len(found) == 1


def test_container_settings_in_base_units():
    """Every container setting arrives in the unit that its name says."""
    scenario = load(
        "name: a\n"
        "job:\n"
        "  operations: [create, start, remove]\n"
        "  container:\n"
        "    image: i\n"
        "    command: sh -c 'sleep 5'\n"
        "    memory: 512MiB\n"
        "    cpus: 1.5\n"
        "    cpuset: 0-1,4\n"
        "    network: none\n"
        "    storage:\n"
        "      - {volume: data, target: /data}\n"
        "      - {volume: , target: /scratch}\n"
        "      - {host: /srv, target: /srv, read_only: true}\n"
        "      - {tmpfs: 64MiB, target: /tmp}\n"
        "      - {tmpfs: , target: /run}\n"
        "    env: {A: no}\n"
        "    log_driver: none\n"
        "    log_options: {max-size: 10m}\n"
        "    init: true\n"
    )
    assert scenario.treatments[0].container == ContainerSettings(
        image="i",
        command=("sh", "-c", "sleep 5"),
        memory_bytes=512 * 1024**2,
        cpus=1.5,
        cpuset="0-1,4",
        network="none",
        storage=(
            Mount("volume", "/data", "data"),
            Mount("volume", "/scratch"),
            Mount("host", "/srv", "/srv", read_only=True),
            Mount("tmpfs", "/tmp", size_bytes=64 * 1024**2),
            Mount("tmpfs", "/run"),
        ),
        env={"A": "no"},
        log_driver="none",
        log_options={"max-size": "10m"},
        init=True,
    )


def test_what_confines_a_container_becomes_settings():
    """Sizes become bytes; limits stay the text that they are, with or without quotes."""
    scenario = load(
        "name: a\n"
        "job:\n"
        "  operations: [create, remove]\n"
        "  container:\n"
        "    image: i\n"
        "    runtime: crun\n"
        "    pids: 64\n"
        "    ulimits: {nofile: 512:1024, core: -1, nproc: '7'}\n"
        "    blkio_weight: 300\n"
        "    device_read_bps: {/dev/sda: 1MiB}\n"
        "    device_write_iops: {/dev/sda: 100}\n"
        "    read_only: true\n"
        "    security_options: [no-new-privileges]\n"
        "    cap_add: [SYS_NICE]\n"
        "    cap_drop: [ALL]\n"
    )
    assert scenario.treatments[0].container == ContainerSettings(
        image="i",
        runtime="crun",
        pids=64,
        ulimits={"nofile": "512:1024", "core": "-1", "nproc": "7"},
        blkio_weight=300,
        device_read_bps={"/dev/sda": 1024**2},
        device_write_iops={"/dev/sda": 100},
        read_only=True,
        security_options=("no-new-privileges",),
        cap_add=("SYS_NICE",),
        cap_drop=("ALL",),
    )


def test_two_mounts_cannot_share_a_target():
    """What one mount would hide of another is refused."""
    (problem,) = problems(HEAD + SLEEP + "container: {storage: [{tmpfs: , target: /x}, {volume: , target: /x/}]}\n")
    assert "s.yaml:4:46: two mounts at '/x'" in problem


def test_a_cpuset_runs_upwards():
    """A range of CPUs that runs backwards is refused with the right one."""
    (problem,) = problems(HEAD + SLEEP + "container: {cpuset: 3-1}\n")
    assert "write 1-3" in problem


def test_defaults():
    """What a scenario does not say has the documented default."""
    scenario = load("name: a\njob: {workload: sysbench-cpu}\n")
    (treatment,) = scenario.treatments
    assert (treatment.engine, treatment.environment, treatment.concurrency) == ("docker", None, 1)
    assert (treatment.iterations, treatment.operation_count, treatment.run_seconds) == (1, None, None)
    assert treatment.timeout_s == 60
    assert (scenario.repeats, scenario.warmup, scenario.order) == ((1,), (0,), "interleaved")
    assert (scenario.seed, scenario.sampling_interval_s, scenario.thresholds) == (None, 1.0, ())
    assert dict(treatment.labels) == {"engine": "docker"}


def test_a_guest_has_every_parameter_and_its_own_image():
    """Parameters are complete and in base units; the image is the workload's if none is given."""
    treatment = load("name: a\njob: {workload: sysbench-cpu, params: {time: 1m30s, percentile: 99}}\n").treatments[0]
    assert isinstance(treatment.job, Guest)
    assert treatment.job.params["time"] == 90.0
    assert treatment.job.params["percentile"] == "99"
    assert treatment.job.params["threads"] == 1
    assert treatment.container.image == "weighbridge/sysbench"


def test_a_guest_keeps_its_own_commands():
    """A container's command has no meaning for a guest job: it is left out, and the user is told."""
    scenario = load("name: a\ncontainer: {command: [x]}\njob: {workload: sysbench-cpu}\n")
    assert scenario.treatments[0].container.command is None
    assert any("'container.command' is ignored" in note for note in scenario.notes)


@pytest.mark.parametrize(
    ("engines", "container", "said"),
    [
        ("[docker]", "{}", "'container.image' is missing: a life-cycle job of engine docker needs one"),
        ("[docker, native]", "{command: [x]}", "'container.image' is missing"),
        ("[docker, native]", "{image: i}", "'container.command' is missing: engine native has no image"),
        ("[native]", "{command: [x]}", None),
        ("[docker]", "{image: i}", None),
    ],
)
def test_what_a_life_cycle_job_needs_depends_on_its_engines(engines, container, said):
    """Engines with images need one; the stock baseline has none and needs the command."""
    text = f"name: a\nengines: {engines}\njob: {{operations: [run, remove], container: {container}}}\n"
    if said is None:
        assert isinstance(load(text).treatments[0].job, Lifecycle)
    else:
        (problem,) = problems(text)
        assert problem.startswith("s.yaml:3:6: ")
        assert said in problem


def test_the_document_loads_to_the_same_scenario():
    """The document in a stats file is complete: it loads to an equal plan, whatever was overridden."""
    import json

    text = (
        "name: 010\nengines: [native]\njob: {workload: sysbench-cpu, params: {time: 2s, threads: 1e0}}\n"
        "container: {env: {A: no, B: 1.10, C: null, D: }, storage: [{tmpfs: , target: /x}], cpus: 1.10}\n"
    )
    scenario = parse_scenario(Source("s.yaml", text), ["repeats=7", "matrix={concurrency: [1, 2]}"])
    again = load(json.dumps(scenario.document))
    assert again.treatments == scenario.treatments
    assert (again.name, again.repeats, again.document) == ("010", (7, 7), scenario.document)


def test_treatments_travel():
    """A treatment that the loader made goes over the wire and comes back equal."""
    from bench_common.treatment import Treatment
    from bench_master.scenario import load_scenario

    for name in ("quickstart", "lifecycle", "concurrency"):
        for treatment in load_scenario(name).treatments:
            assert msgspec.convert(treatment.to_dict(), Treatment, dec_hook=read_job) == treatment


def test_a_rate_opens_the_load():
    """Rate, arrivals and queue_timeout of a treatment; as many slots as an open load needs unless they are given."""
    text = (
        f"{HEAD}rate: 30/min\nqueue_timeout: 2s\nrun_seconds: 9\nmatrix: {{arrivals: [constant, poisson]}}\n{SLEEP}"
    )
    treatments = load(text).treatments
    assert [one.open_load for one in treatments] == [OpenLoad(0.5, "constant", 2.0), OpenLoad(0.5, "poisson", 2.0)]
    assert {one.concurrency for one in treatments} == {OPEN_CONCURRENCY}
    assert [msgspec.convert(one.to_dict(), Treatment, dec_hook=read_job) for one in treatments] == list(treatments)
    assert load(f"{HEAD}rate: 5\noperation_count: 9\nconcurrency: 3\n{SLEEP}").treatments[0].concurrency == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("rate: 5/s", "s.yaml:3:7: 'rate' needs an end: set 'operation_count' (-o) or 'run_seconds' (--run-seconds)"),
        (
            "rate: 5/s\niterations: 2",
            "s.yaml:4:13: 'iterations' counts the jobs of a slot and cannot be used with 'rate'",
        ),
        ("arrivals: poisson", "s.yaml:3:11: 'arrivals' needs a 'rate', such as 'rate: 200/s'"),
        ("queue_timeout: 1s", "s.yaml:3:16: 'queue_timeout' needs a 'rate', such as 'rate: 200/s'"),
        ("rate: 5/year\nrun_seconds: 1", "s.yaml:3:7: '5/year': unknown unit of time 'year'"),
        ("rate: 0/s\nrun_seconds: 1", "s.yaml:3:7: '0/s': expected a rate such as 200/s or 30/min, more than 0/s"),
        ("rate: 5\nrun_seconds: 1\narrivals: poison", "unknown arrival process 'poison' (did you mean 'poisson'?)"),
    ],
)
def test_an_open_load_that_makes_no_sense_is_refused(given, said):
    """At its place, with what to write."""
    found = problems(f"{HEAD}{given}\n{SLEEP}")
    assert len(found) == 1
    assert said in found[0]


def test_a_container_is_detached_and_has_no_terminal_whether_it_is_said_or_not():
    """Who says so is understood; nothing else is possible, and that is told with the reason."""
    said = load(
        f"{HEAD}container: {{image: i, command: x, detached: true, tty: never}}\njob: {{operations: [run, remove]}}\n"
    )
    unsaid = load(f"{HEAD}container: {{image: i, command: x}}\njob: {{operations: [run, remove]}}\n")
    assert said.treatments == unsaid.treatments
    for words, reason in (
        ("detached: false", "'false': every container runs detached: an attached client"),
        ("tty: always", "unknown terminal 'always'; one of: never"),
        ("tmpfs: 1m", "unknown key 'tmpfs' in the container: it belongs under 'storage:'"),
    ):
        with pytest.raises(ScenarioError, match=re.escape(reason)):
            load(f"{HEAD}container: {{image: i, {words}}}\njob: {{operations: [run, remove]}}\n")


def test_a_list_where_one_number_is_wanted_is_shown_the_matrix():
    """Several values to try are what a matrix is for."""
    with pytest.raises(ScenarioError, match="at most 65536; put several values to try under 'matrix'"):
        load(f"{HEAD}concurrency: [1, 2, 4]\njob: {{operations: [sleep: 1s], container: {{image: i}}}}\n")
