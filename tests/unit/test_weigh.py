"""`weigh`: a command line becomes the scenario that runs, and that `--save-scenario` writes."""

import shlex

import pytest
from msgspec.structs import replace

from bench_common.treatment import Guest, Lifecycle
from bench_master.cli import run_command_line
from bench_master.commands import weigh
from bench_master.options.load import apply_load_options
from bench_master.options.verdict import apply_verdict_options
from bench_master.scenario import load_scenario


@pytest.fixture
def weighed(monkeypatch, tmp_path):
    """Run a command line up to the run itself; return its exit code, the scenario and the options of the run."""
    monkeypatch.chdir(tmp_path)
    runs = []
    monkeypatch.setattr(weigh, "run_loaded", lambda *given: runs.append(given) or 0)

    def call(text):
        runs.clear()
        assert run_command_line(["weigh", *shlex.split(text)]) == 0
        ((scenario, options),) = runs
        return scenario, options

    return call


def complaint(capsys, *words):
    """Return the one line that a refused command line prints."""
    try:
        status = run_command_line(["weigh", *words])
    except SystemExit as ended:
        status = ended.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    return line


def test_a_container_with_the_command_from_create_to_remove(weighed):
    """Each engine is a treatment; the command is the container's own, and every step of its life is timed."""
    scenario, _ = weighed("docker runc crun native --image web:1 --concurrency 4 --repeats 12 -- sleep 1")
    assert [one.labels for one in scenario.treatments] == [
        {"engine": engine} for engine in ("docker", "runc", "crun", "native")
    ]
    first = scenario.treatments[0]
    assert isinstance(first.job, Lifecycle)
    assert [one.kind for one in first.job.operations] == ["create", "start", "wait", "remove"]
    assert (first.container.image, first.container.command, first.concurrency) == ("web:1", ("sleep", "1"), 4)
    assert (set(scenario.repeats), set(scenario.warmup), set(scenario.primary)) == ({12}, {1}, {"job.p50"})
    assert (scenario.name, scenario.thresholds) == ("sleep 1", ("jobs.failed == 0",))


def test_failures_that_are_allowed_break_no_threshold(weighed):
    """A threshold on failed jobs would take precedence over the option."""
    scenario, _ = weighed("native --allow-failures -- false")
    assert (scenario.allow_failures, scenario.thresholds) == (True, ())


def test_the_command_alone(weighed):
    """It runs in an idle container, so that the time of a job is its own."""
    scenario, _ = weighed("docker native --job command -- sh -c 'seq 3'")
    first = scenario.treatments[0]
    assert isinstance(first.job, Guest)
    assert first.job.workload == "command"
    assert (first.job.own.command, first.job.own.prepare) == (("sh", "-c", "seq 3"), ("true",))
    assert first.container.image == "weighbridge/base"


@pytest.mark.parametrize("words", ["true --help", "true -- -x", "true --dry-run -q", "env A=1 -f x"])
def test_what_stands_after_the_dashes_is_the_commands(weighed, words):
    """No option of it is taken for one of ours, and later dashes are passed on."""
    scenario, options = weighed(f"native -- {words}")
    assert scenario.treatments[0].container.command == tuple(words.split())
    assert not options.dry_run


SAVED = [
    "docker native -- sleep 1",
    "docker runc --job command --image web:1 --concurrency 3 --repeats 7 -- sleep 1",
    "docker native -o 30 --seed 5 --baseline engine=native --margin 5% --overhead -- true",
    "docker native --allow-failures -- true",
    "docker native -r 90 --rate 20/s --arrivals poisson -- true",
    "docker native --until verdict -- true",
    "docker native --until verdict --max-rounds 12 --budget 2h -- true",
    "docker native --set container.network=host --set timeout=1h --set 'matrix={concurrency: [1, 2]}' -o 5 -- true",
    """native -- no 1:30 y 0x10 '' '# a' 'b: c' "it's" '"' - '[x' ~ 3.0 '{{x}}' 'zwei Wörter' 'a\nb' '%' '!x' '&y'""",
]


@pytest.mark.parametrize("words", SAVED)
def test_the_saved_scenario_is_the_one_that_runs(weighed, words):
    """`run-scenario -f` of the file has the same treatments, rounds, seed and comparisons, without any option."""
    scenario, options = weighed(f"--save-scenario x.yaml {words}")
    ran = apply_verdict_options(apply_load_options(scenario, options.load), options.verdicts)
    saved = load_scenario("x.yaml")
    assert saved.treatments == ran.treatments
    assert saved.seed == options.load.seed
    other = replace(saved, path=ran.path, text=ran.text, document=ran.document, seed=ran.seed, notes=ran.notes)
    assert other == ran


def test_a_file_with_something_else_in_it_is_kept(weighed, tmp_path, capsys):
    """The same command may write its file again; another one is refused, and what is there stays."""
    for _ in range(2):
        weighed("native --save-scenario x.yaml -- true")
    text = (tmp_path / "x.yaml").read_text()
    capsys.readouterr()
    message = complaint(capsys, "native", "--save-scenario", "x.yaml", "--", "false")
    assert message.startswith("bench-master: x.yaml: already exists, with something else in it; name another")
    assert (tmp_path / "x.yaml").read_text() == text
    missing = complaint(capsys, "native", "--save-scenario", "no/x.yaml", "--", "false")
    assert missing.startswith("bench-master: no/x.yaml: cannot write: No such file or directory; name another")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("dokcer native -- true", "unknown engine 'dokcer' (did you mean 'docker'?); one of: "),
        ("native native -- true", "engine 'native' is named twice"),
        ("docker runc sleep 1", "write it after '--', such as: bench-master weigh docker runc -- sleep 1;"),
        ("docker ls -l 'a b'", "write it after '--', such as: bench-master weigh docker -- ls -l 'a b';"),
        ("docker --job command x", "write it after '--', such as: bench-master weigh docker -- sleep 1;"),
        ("", "the command is missing: write it after '--', such as: bench-master weigh docker native -- sleep 1;"),
        ("native --", "the command is missing: write it after '--', such as: bench-master weigh native -- sleep 1;"),
        ("native -- ''", "the command is empty: the first word after '--' is the program to run"),
        ("-- true", "the following arguments are required: ENGINE"),
        ("native --jbo command -- true", "unknown option --jbo (did you mean '--job'?)"),
        ("native --job comand -- true", "(did you mean 'command'?)"),
        ("native --concurrency 0 -- true", "'0': expected a whole number from 1 to 65536"),
        ("native -u 3 -- true", "--user-count 3: give --concurrency 3 instead"),
        ("native docker --until verdict --repeats 3 -- true", "or give --max-rounds"),
        ("native --until verdict -- true", "nothing to compare it with"),
        ("native --rate 5/s --save-scenario x.yaml -- true", "give the number of jobs (-o) or the length of a trial"),
        ("native --set enginse=x --dry-run -- true", "(did you mean 'engines'?)"),
    ],
)
def test_a_wrong_command_line_is_one_line_that_says_what_to_do(capsys, monkeypatch, tmp_path, words, message):
    """A misspelt engine, missing dashes, a missing command: exit code 2, nothing runs and nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert message in complaint(capsys, *shlex.split(words))
    assert list(tmp_path.iterdir()) == []


def test_a_word_that_is_not_text_is_refused(capsys):
    """A scenario is text, so no byte of a command may be none."""
    assert "the command is not UTF-8" in complaint(capsys, "native", "--", "echo", "\udcff")


def test_the_plan_is_that_of_a_scenario(capsys, monkeypatch, tmp_path):
    """`--dry-run` prints it; `--help` shows how the command is written."""
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["weigh", "docker", "native", "--dry-run", "--seed", "1", "--", "sleep", "1"]) == 0
    assert "2 treatments, 20 trials and 2 warm-up trials" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run_command_line(["weigh", "--help"])
    assert "usage: bench-master weigh [-h] ENGINE [ENGINE ...] [OPTIONS] -- COMMAND" in capsys.readouterr().out
