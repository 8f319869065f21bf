"""Metrics that a scenario defines itself: how they are written, and what is found in an output."""

import contextlib
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_common.errors import ParseError, ScenarioError
from bench_common.job_kind import read_job
from bench_common.long_output import OUTPUT_GAP
from bench_common.treatment import MetricSource, OwnCommand, OwnService, Treatment
from bench_master.scenario.json_schema import scenario_schema
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_workloads import metric_sources
from bench_workloads.metric_sources import check_pattern, parse_path, read_metrics
from bench_workloads.registry import workload_of
from bench_workloads.script import job_limit_s, job_metrics, job_script, operation_limit_s, preparation_script


def value(text, stderr="", **source):
    """Return the one metric that is found in an output."""
    return read_metrics([MetricSource("m", **source)], text.encode(), stderr.encode())["m"]


def refusal(text, stderr="", **source):
    """Return why none is found."""
    with pytest.raises(ParseError) as caught:
        value(text, stderr, **source)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("score: 12.5\n", {"regex": r"score: ([\d.]+)"}, 12.5),
        ("a\nscore: -1e3", {"regex": r"^score: (\S+)$"}, -1000.0),
        ("1\n2\n3\n", {"regex": r"^(\d)$", "take": "first"}, 1.0),
        ("1\n2\n3\n", {"regex": r"^(\d)$", "take": "last"}, 3.0),
        ("x\0\xff 7 MB/s", {"regex": r"(\d+) (?:MB|GB)/s"}, 7.0),
        ('{"latency": {"p95": 3.5}}', {"json": "$.latency.p95"}, 3.5),
        ('{"runs": [{"score": 1}, {"score": 2}]}', {"json": "$.runs[1].score"}, 2.0),
        ('{"runs": [1, 2, 3]}', {"json": "$['runs'][-1]"}, 3.0),
        ('{"p99.9": 4}', {"json": '$["p99.9"]'}, 4.0),
        ("5", {"json": "$"}, 5.0),
    ],
)
def test_a_metric_is_found(text, source, expected):
    """What the group captures, or what the path leads to, is the value."""
    assert value(text, **source) == expected


def test_a_metric_can_be_on_stderr():
    """`stream` names the stream."""
    assert value("n=1", "n=2", regex="n=(.)", stream="stderr") == 2.0
    assert value("", '{"a": 2}', json="$.a", stream="stderr") == 2.0


@pytest.mark.parametrize(
    ("text", "source", "reason"),
    [
        ("hello\nworld", {"regex": r"(\d+) MB"}, r"nothing in stdout matches '(\d+) MB'; it begins: 'hello\nworld'"),
        (" \n", {"regex": "(x)"}, "; it is empty"),
        ("y" * 300, {"regex": "(x)"}, "yyy'..."),
        ("1\n\n2", {"regex": r"(\d)"}, "matches more than once in stdout (lines 1 and 3): make it more precise"),
        ("1,234", {"regex": r"([\d,]+)"}, "captures '1,234' in line 1 of stdout, not a number"),
        ("nan", {"regex": "(nan)"}, "not a number"),
        ("9" * 400, {"regex": r"(\d+)"}, "not a number"),
        ("a", {"regex": r"(\d)?a"}, "captures None"),
        (
            "oops {}",
            {"json": "$.a"},
            "not JSON: Expecting value: line 1 column 1 (char 0); it begins: 'oops {}'",
        ),
        ("[" * 100_000, {"json": "$"}, "stdout is not JSON"),
        ("9" * 5000, {"json": "$"}, "stdout is not JSON"),
        ('{"p50": 1}', {"json": "$.p95"}, "$.p95 leads nowhere: $ has no 'p95' (did you mean 'p50'?)"),
        ('{"a": [1]}', {"json": "$.a[1]"}, "$.a has 1 items"),
        ('{"a": [1]}', {"json": "$.a.b"}, "$.a is not an object"),
        ('{"a": 1}', {"json": "$[0]"}, "$ is not a list"),
        ('{"a": true}', {"json": "$.a"}, "$.a is true, not a number"),
        ('{"a": "5"}', {"json": "$.a"}, '$.a is "5", not a number'),
        ('{"a": NaN}', {"json": "$.a"}, "not a number"),
        (f'{{"a": 1{"0" * 400}}}', {"json": "$.a"}, "not a number"),
    ],
)
def test_a_metric_that_is_not_there_is_a_reason(text, source, reason):
    """No value is guessed: the reason names the metric and shows what was printed."""
    told = refusal(text, **source)
    assert told.startswith("metric m: ")
    assert reason in told


def test_the_other_stream_is_named_if_it_has_the_metric():
    """Tools that report on stderr are common."""
    assert "(stderr has a match: set 'stream: stderr')" in refusal("", "7 MB/s", regex=r"(\d+) MB/s")


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|aa)+$", r"(?:a?){30}(a{30})$", r"((?:.*?a){25})P"])
def test_no_expression_searches_for_ever(monkeypatch, pattern):
    """An expression that would take years is given up after a few seconds of CPU time, here fifths of a second."""
    assert metric_sources.SEARCH_CPU_S == 1.0
    monkeypatch.setattr(metric_sources, "SEARCH_CPU_S", 0.2)
    begin = time.process_time()
    with pytest.raises(ParseError, match=r"took more than 0.2 s: use a simpler expression|nothing in stdout"):
        value("a" * (1 << 20) + "b", regex=pattern)
    assert time.process_time() - begin < 10 * 0.2


@given(
    text=st.text(), pattern=st.sampled_from([r"(\d+)", r"^(.*)$", r"(\S+)\s"]), take=st.sampled_from(["only", "last"])
)
def test_any_output_gives_numbers_or_a_reason(text, pattern, take):
    """No output raises anything but `ParseError`."""
    for source in (MetricSource("m", regex=pattern, take=take), MetricSource("m", json="$.a[0]")):
        with contextlib.suppress(ParseError):
            assert isinstance(read_metrics([source], text.encode(), b"")["m"], float)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (
            r"score: ([\d.]+",
            "not a regular expression: missing ), unterminated subpattern at character 8, '([\\d.]+'",
        ),
        ("score: [0-9.]+", "a regular expression with no groups: put the number into one"),
        ("(a)(b)", "a regular expression with 2 groups: one has to capture the number: write the others as (?:...)"),
        ("*(a)", "nothing to repeat at character 1"),
        ("((?:(?:a{1000}){1000}){1000})", "more than 100000 repetitions"),
        ("(" + "a" * 1000 + ")", "1002 characters; a regular expression has at most 1000"),
        ("(" * 400, "not a regular expression"),
    ],
)
def test_an_expression_that_cannot_work_is_refused(pattern, reason):
    """Position and reason are told, before anything runs."""
    with pytest.raises(ValueError) as caught:
        check_pattern(pattern)
    assert reason in str(caught.value)


def test_the_syntax_of_paths_is_that_of_singular_queries():
    """Names and indices of RFC 9535; what could select several values is refused at its position."""
    assert parse_path("$") == ()
    assert parse_path("""$.a_1['b c']["d"][0][-2].é""") == ("a_1", "b c", "d", 0, -2, "é")
    for text in (
        "a",
        "",
        "$a",
        "$.",
        "$..a",
        "$.*",
        "$[*]",
        "$[00]",
        "$[-0]",
        "$[1:2]",
        "$[?@.a]",
        "$.a b",
        "$.1",
        "$['a",
    ):
        with pytest.raises(ValueError, match="JSONPath of names and indices"):
            parse_path(text)
    with pytest.raises(ValueError, match=r"'\[\*\]' at character 4"):
        parse_path("$.a[*]")


# -- scenarios ----------------------------------------------------------------------------------------------------


def load(job, more=""):
    """Return the treatments of a scenario with this job."""
    return parse_scenario(Source("s.yaml", f"name: a\n{more}job:\n  container: {{image: i}}\n  {job}\n")).treatments


def problems(job, more=""):
    """Return what is wrong with it."""
    with pytest.raises(ScenarioError) as caught:
        load(job, more)
    return [str(problem) for problem in caught.value.problems]


OWN = "workload: command\n  command: [t, -x]\n  "


def test_a_command_of_ones_own_becomes_a_job():
    """The commands are steps, the metrics are declared with unit and direction, and a worker gets all of it."""
    (one,) = load(
        OWN + "setup: s 1\n  prepare: p\n  cleanup: c\n  timeout: 5s\n"
        "  metrics: {score: {regex: 'score: ([\\d.]+)', unit: 1/s, better: higher}, p95: {json: $.p95}}"
    )
    score = MetricSource("score", regex=r"score: ([\d.]+)", unit="1/s", better="higher")
    assert one.job.own == OwnCommand(
        ("t", "-x"), ("s", "1"), ("p",), ("c",), (score, MetricSource("p95", json="$.p95"))
    )
    script = job_script(one)
    assert [(step.kind, step.name, step.timed) for step in script] == [
        ("create", "create", True),
        ("start", "start", True),
        ("exec", "prepare", False),
        ("exec", "run", True),
        ("exec", "cleanup", False),
        ("remove", "remove", True),
    ]
    assert script[3].metrics == one.job.own.metrics
    assert [step.argv for step in preparation_script(one) if step.argv] == [("s", "1")]
    assert job_metrics(one) == {
        "score": {"unit": "1/s", "direction": "higher", "primary": True},
        "p95": {"unit": "1", "direction": "", "primary": True},
    }
    assert operation_limit_s(script[3], one) == 5.0
    assert job_limit_s(one) < 120
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=Treatment, dec_hook=read_job) == one


def test_a_command_alone_is_the_containers_own():
    """Without `prepare` and `cleanup` the job waits for the container's own command."""
    (one,) = load(OWN)
    assert [step.kind for step in job_script(one)] == ["create", "start", "wait", "remove"]
    assert preparation_script(one) == ()


def test_commands_can_vary():
    """A matrix of commands compares two versions."""
    found = load(OWN, "matrix: {command: [[a, '1'], [a, '2']], prepare: [x, y]}\n")
    assert [(one.job.own.command[1], one.job.own.prepare[0]) for one in found] == [
        ("1", "x"),
        ("1", "y"),
        ("2", "x"),
        ("2", "y"),
    ]
    assert found[0].labels == {"engine": "docker", "command": "a 1", "prepare": "x"}


def test_exec_has_metrics_too():
    """An `exec` of a life-cycle job declares metrics in its long form."""
    (one,) = load("operations: [run, exec: {command: date, metrics: {n: {regex: '(.)', better: lower}}}, commit]")
    assert job_metrics(one)["n"] == {"unit": "1", "direction": "lower", "primary": True}
    assert "commit_bytes" in job_metrics(one)
    assert job_script(one)[1].metrics == (MetricSource("n", regex="(.)", better="lower"),)


def test_verdicts_are_about_the_metric_that_primary_names():
    """Without it, about the first one of which more or less is better."""
    metrics = "metrics: {n: {json: $.n}, a: {json: $.a, better: lower}, b: {json: $.b, better: higher}}"
    for keys, expected in (
        (metrics, "a"),
        ("primary: b\n  " + metrics, "b"),
        ("metrics: {n: {json: $.n}}", "job.p50"),
    ):
        text = f"name: a\njob:\n  container: {{image: i}}\n  {OWN}{keys}\n"
        assert parse_scenario(Source("s.yaml", text)).primary == (expected,)


def test_a_threshold_may_name_a_metric_of_ones_own():
    """Metrics of the scenario are known as those of workloads are."""
    metrics = "metrics: {score: {regex: '(.)'}}"
    assert load(OWN + metrics, "thresholds: [metrics.score.median > 1]\n")
    (told,) = problems(OWN + metrics, "thresholds: [metrics.scor.median > 1]\n")
    assert "did you mean 'score'?" in told


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (OWN + "metrics: {a: {regex: 'x(', unit: ms}}", "s.yaml:6:24: 'x(': not a regular expression: missing )"),
        (OWN + "metrics: {a: {regex: 'x'}}", "s.yaml:6:24: 'x': a regular expression with no groups"),
        (OWN + "metrics: {a: {json: a.b}}", "s.yaml:6:23: 'a.b': a path begins with $"),
        (
            OWN + "metrics: {a: {regx: '(x)'}}",
            "s.yaml:6:17: unknown key 'regx' in the metric (did you mean 'regex'?)",
        ),
        (OWN + "metrics: {a: {regex: (x), json: $.a}}", "'json' and 'regex' are mutually exclusive"),
        (OWN + "metrics: {a: {unit: ms}}", "'regex', 'json' or 'usage' is missing: say where the number is"),
        (OWN + "metrics: {a: {regex: (x), better: highr}}", "did you mean 'higher'?"),
        (OWN + "metrics: {a: {json: $.a, take: last}}", "'take' requires 'regex'"),
        (OWN + "metrics: {'a b': {json: $.a}}", "s.yaml:6:13: 'a b' cannot name a metric"),
        (OWN + "metrics: {stats_readings: {json: $.a}}", "is a measure that Weighbridge takes itself"),
        (OWN + "metrics: {jobs_per_s: {json: $.a}}", "is a measure that Weighbridge takes itself"),
        (OWN + "primary: scor\n  metrics: {score: {json: $.a}}", "unknown measure 'scor' (did you mean 'score'?)"),
        (OWN + "primary: n\n  metrics: {n: {json: $.a}}", "'primary': n has no direction: add 'better: higher' or"),
        (OWN + "metrics: {}", "0 metrics; a command has from 1 to 100"),
        (OWN + "metrics: [a]", "expected metrics by name"),
        (OWN + "metrics: {a: {json: $.a}, a: {json: $.b}}", "s.yaml:6:29: key 'a' appears twice (first on line 6)"),
        (OWN + "params: {x: 1}", "unknown parameter 'x' of command"),
        ("workload: command", "'command' is missing: workload command runs a command of yours"),
        ("workload: command\n  comand: [t]", "unknown key 'comand' in the job (did you mean 'command'?)"),
        ("workload: comand\n  command: [t]", "unknown workload 'comand' (did you mean 'command'?)"),
        ("command: [t]", "'command' requires 'workload: command': add it"),
        ("workload: mbw\n  setup: [t]", "'setup' requires 'workload: command'; other workloads"),
        ("operations: [run]\n  command: [t]", "a container's command is 'container.command'"),
        ("operations: [run]\n  metrics: {a: {json: $.a}}", "write metrics of an operation as {exec:"),
        ("operations: [run, exec: {metrics: {a: {json: $}}}]", "key 'command' is missing"),
        (
            "operations:\n  - run\n  - exec: &a {command: t, metrics: {n: {json: $}}}\n  - exec: *a",
            "s.yaml:7:5: metric 'n' is in the job twice (first in the operation on line 6): rename one",
        ),
    ],
)
def test_what_is_wrong_is_told_once_with_its_place(job, told):
    """Each mistake is one problem with its line, and the nearest right spelling."""
    (problem,) = problems(job)
    assert told in problem


def test_an_image_is_the_users():
    """The workload has no image, so engines that need one ask for it."""
    text = "name: a\nengines: [native, docker]\njob: {workload: command, command: [t]}\n"
    with pytest.raises(ScenarioError, match=r"'container\.image' is missing: workload command has no image"):
        parse_scenario(Source("s.yaml", text))
    assert parse_scenario(Source("s.yaml", text.replace(", docker", ""))).treatments[0].container.image is None


def test_other_jobs_cannot_vary_the_command():
    """A matrix that every job inherits says so where it does not fit."""
    told = problems("operations: [run]", "matrix: {command: [[a], [b]]}\n")[0]
    assert "'command' varies here, but this job does not run the workload command" in told


def test_the_schema_has_the_keys():
    """Editors complete the keys of a metric."""
    text = str(scenario_schema())
    assert all(word in text for word in ("'regex'", "'json'", "'better'", "'prepare'", "'cleanup'"))


# -- services -----------------------------------------------------------------------------------------------------

CACHE = "services: {cache: {image: c, command: [serve, now], port: 6379, ready: [ping], memory: 64MiB}}"


def test_a_command_can_be_the_client_of_a_service_of_ones_own():
    """The service has its own command, port and check; its container has the usual settings."""
    (one,) = load(OWN + CACHE)
    assert one.job.own.services == (OwnService("cache", ("serve", "now"), 6379, ("ping",)),)
    assert (one.services["cache"].image, one.services["cache"].memory_bytes) == ("c", 64 << 20)
    (service,) = workload_of(one.job).services
    assert [service.name, service.command, service.port, service.ready] == [
        "cache",
        ("serve", "now"),
        6379,
        ("ping",),
    ]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(one), type=Treatment, dec_hook=read_job) == one


def test_a_command_can_be_the_client_of_a_service_of_a_workload():
    """Its image, command and files are those that the workload declares; the top level alone starts nothing."""
    (one,) = load(OWN + "services: {mariadb: {memory: 1GiB}}")
    assert one.services["mariadb"].image == "weighbridge/mariadb"
    assert list(one.services["mariadb"].files) == ["/etc/weighbridge/my.cnf"]
    assert [each.name for each in workload_of(one.job).services] == ["mariadb"]
    (alone,) = load(OWN, "services: {mariadb: {memory: 1GiB}}\n")
    assert alone.services == {}


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (OWN + "services: {mariadbb: {}}", "unknown key 'mariadbb' in the services (did you mean 'mariadb'?)"),
        (OWN + "services: {c: {command: [s], port: 1, image: i}}", "key 'ready' is missing in the service"),
        (OWN + "services: {c: {command: [s], port: 99999, ready: [r], image: i}}", "99999': expected a whole number"),
        (OWN + "services: {C: {command: [s], port: 1, ready: [r], image: i}}", "'C' cannot name a service"),
        (OWN + "services: {once: {command: [s], port: 1, ready: [r], image: i}}", "'once' cannot name a service"),
        (OWN + "services: {c: {command: [s], port: 1, ready: [r]}}", "'services.c.image' is missing: engine docker"),
        (OWN + "services: {c: {command: [s], port: 1, ready: [r], imag: i}}", "(did you mean 'image'?)"),
        ("workload: mbw\n  " + CACHE, "workload mbw has no service 'cache'"),
    ],
)
def test_what_is_wrong_with_a_service_is_told_once(job, told):
    """A name that says nothing of serving is a misspelling; one that does needs all of it."""
    (problem,) = problems(job)
    assert told in problem


def test_a_long_output_gives_what_stands_at_its_ends():
    """What was left out may hold another match: it is not for the first or the last, and nothing else is certain."""
    text = f"m 1\nm 2\n{OUTPUT_GAP}\nm 8\nm 9\n"
    assert value(text, regex=r"^m (\d)", take="first") == 1
    assert value(text, regex=r"^m (\d)", take="last") == 9
    assert "set 'take: first' or 'take: last'" in refusal(text, regex=r"^m (9)")
    assert "nothing in the end of stdout" in refusal(text, regex=r"^m (1)", take="last")
    assert "its middle was not kept" in refusal(f'{{"a": 1,\n{OUTPUT_GAP}\n"b": 2}}', json="$.a")
