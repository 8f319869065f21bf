"""`bench-master init` writes a scenario that runs as it is, and that explains itself."""

import io
import re
import sys

import pytest

from bench_common.engine_traits import engine_names
from bench_master.cli import run_command_line
from bench_master.commands import init
from bench_master.scenario.load import load_scenario, parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_workloads.registry import workload_classes

WORKLOADS = [name for name in workload_classes() if name != init.COMMAND]


class Terminal(io.StringIO):
    """Somebody who types these lines."""

    def isatty(self):
        return True


def test_three_options_write_a_scenario(tmp_path, capsys):
    """Without a question; the file loads, and the next commands are named."""
    path = tmp_path / "mine.yaml"
    command = ["init", str(path), "--job", "mytool --fast 'a b'", "--engines", "docker, native", "--repeats", "7"]
    assert run_command_line(command) == 0
    scenario = load_scenario(str(path))
    assert [one.engine for one in scenario.treatments] == ["docker", "native"]
    assert scenario.repeats == (7, 7)
    assert scenario.treatments[0].job.own.command == ("mytool", "--fast", "a b")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"bench-master run-scenario -f {path} --dry-run" in printed.err


@pytest.mark.parametrize("job", [init.LIFECYCLE, "sleep 1", *WORKLOADS])
@pytest.mark.parametrize("repeats", [10, None])
def test_whatever_is_measured_the_scenario_is_valid_and_commented(job, repeats):
    """Every kind of job and of repeats, under all engines; each key has a comment before it."""
    text = init.scenario_text("s.yaml", init.parse_job(job), init.parse_engines("docker,native"), repeats)
    scenario = parse_scenario(Source("s.yaml", text))
    assert (scenario.until_verdict is None) is (repeats is not None)
    lines = text.splitlines()
    for key in ("engines", "repeats", "warmup", "concurrency", "thresholds"):
        (place,) = [number for number, line in enumerate(lines) if line.startswith(f"{key}:")]
        assert lines[place - 1].startswith("# ")
    assert max(map(len, lines)) <= 140


def test_a_life_cycle_asks_for_nothing_that_some_engine_refuses():
    """OCI runtimes and containerd bring no init; a plan with `init: true` cannot run there."""
    text = init.scenario_text("s.yaml", init.LIFECYCLE, engine_names(), 10)
    assert all(one.container.init is None for one in parse_scenario(Source("s.yaml", text)).treatments)


@pytest.mark.parametrize("job", [init.LIFECYCLE, "sleep 1", "sysbench-cpu"])
def test_what_it_writes_has_a_small_size(job, tmp_path, capsys):
    """As each ready-made scenario has: one trial without a warm-up. A command gives its name to the scenario."""
    path = tmp_path / "s.yaml"
    assert run_command_line(["init", str(path), "--job", job, "--repeats", "verdict"]) == 0
    assert run_command_line(["run-scenario", "-f", str(path), "--set", "scale=small", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert f"Scenario     {job.split()[0]} (small)" in printed
    assert "2 treatments, 2 trials, 2 jobs" in printed


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_commented_parameters_can_be_used(name):
    """With the # removed, the defaults are what they were without."""
    text = init.scenario_text("s.yaml", name, ["docker"], 10)
    used = re.sub(r"^  # (params:|  \w+: )", r"  \1", text, flags=re.MULTILINE)
    assert used != text
    before, after = (parse_scenario(Source("s.yaml", one)).treatments[0] for one in (text, used))
    assert after.job == before.job


def test_a_terminal_is_asked_three_questions(tmp_path, capsys, monkeypatch):
    """An empty answer takes the default in brackets, and a wrong one is asked again."""
    path = tmp_path / "s.yaml"
    monkeypatch.setattr(sys, "stdin", Terminal("sysbench-cup\nsysbench-cpu\n\nverdict\n"))
    assert run_command_line(["init", str(path)]) == 0
    asked = capsys.readouterr().err
    assert asked.count("[lifecycle]: ") == 2
    assert "did you mean 'sysbench-cpu'" in asked
    scenario = load_scenario(str(path))
    assert [one.engine for one in scenario.treatments] == ["docker", "native"]
    assert scenario.treatments[0].job.workload == "sysbench-cpu"
    assert scenario.until_verdict is not None


def test_an_option_answers_its_question(tmp_path, capsys, monkeypatch):
    """Only what is missing is asked."""
    monkeypatch.setattr(sys, "stdin", Terminal("5\n"))
    command = ["init", str(tmp_path / "s.yaml"), "--job", "lifecycle", "--engines", "native"]
    assert run_command_line(command) == 0
    asked = capsys.readouterr().err
    assert asked.count("]: ") == 1
    assert "How many trials" in asked


def test_answers_that_end_write_nothing(tmp_path, capsys, monkeypatch):
    """Ctrl-D is no answer."""
    monkeypatch.setattr(sys, "stdin", Terminal("lifecycle\n"))
    path = tmp_path / "s.yaml"
    assert run_command_line(["init", str(path)]) == 2
    assert "the answers ended; nothing was written" in capsys.readouterr().err
    assert not path.exists()


def test_without_a_terminal_there_are_defaults_and_no_wait(capsys, monkeypatch):
    """- is standard output, for a pipe."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert run_command_line(["init", "-"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert len(parse_scenario(Source("-", printed.out)).treatments) == 2


def test_an_existing_file_stays_as_it_is(tmp_path, capsys):
    """Nothing is asked before it is refused."""
    path = tmp_path / "s.yaml"
    path.write_text("mine")
    assert run_command_line(["init", str(path)]) == 2
    assert "already exists, and init overwrites nothing" in capsys.readouterr().err
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--job", "sysbench-cup"], "did you mean 'sysbench-cpu'?"),
        (["--job", "true"], "a command without arguments is written with its path, such as /bin/true"),
        (["--job", "echo 'a"], "--job echo 'a: not a command: no closing quotation"),
        (["--engines", "dcker"], "--engines dcker: unknown engine 'dcker' (did you mean 'docker'?)"),
        (["--engines", ","], "expected names of engines"),
        (["--repeats", "0"], "expected a whole number from 1 to 10000, or verdict"),
        (["--repeats", "verdct"], "(did you mean 'verdict'?)"),
        (["--repeats", "verdict", "--engines", "native"], "a verdict compares two engines, and there is one: native"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_right(flags, message, capsys, monkeypatch):
    """Exit code 2 and the nearest spelling, without a traceback."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert run_command_line(["init", "-", *flags]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    """The place and the reason of the system."""
    path = tmp_path / "none" / "s.yaml"
    assert run_command_line(["init", str(path), "--job", "lifecycle"]) == 3
    assert f"{path}: cannot write the scenario: No such file or directory" in capsys.readouterr().err


def test_all_engines_can_be_named():
    """Every installed engine is an answer."""
    assert init.parse_engines(",".join(engine_names())) == engine_names()
