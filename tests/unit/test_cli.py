"""The command line of bench-master: exit codes, one clear error, switches on either side of the sub-command."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import json
import os
import pkgutil
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest
from deadlines import END_S
from msgspec import Struct
from msgspec.structs import astuple

from bench_common.errors import (
    EngineUnavailable,
    ExitCode,
    InfrastructureError,
    ParseError,
    Problem,
    ProtocolError,
    ScenarioError,
    StatsFileError,
    UsageError,
    WeighbridgeError,
)
from bench_common.guard import run_guarded
from bench_common.streams import harden_streams
from bench_master import cli, commands
from bench_master.commands import GROUP, KERNEL_COMMANDS, CommandEntry, all_commands


class Options(Struct, frozen=True):
    verbose: bool
    quiet: bool
    debug: bool


def a_command(run=lambda options: 0):
    return SimpleNamespace(Options=Options, configure=lambda parser: None, run=run)


@pytest.fixture
def call(monkeypatch):
    """Run the command line with sub-commands of our own and return its exit code."""

    def call(*argv, run=lambda options: 0):
        ours = {name: CommandEntry(name.replace("-", " "), name) for name in ("list-things", "weigh-things")}
        for name in ("all_commands", "own_commands"):
            monkeypatch.setattr(cli, name, lambda: ours)
        monkeypatch.setattr(cli, "find_command", ours.get)
        monkeypatch.setattr(cli, "load_command", lambda _name: a_command(run))
        return cli.run_command_line(argv)

    return call


def raising(error):
    def run(options):
        raise error

    return run


@pytest.mark.parametrize("status", [*ExitCode, 0, 3])
def test_the_commands_status_is_the_exit_code(call, status):
    """What a sub-command returns is what the shell sees."""
    assert call("weigh-things", run=lambda options: status) == int(status)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("no such file"), 2),
        (ScenarioError([Problem("a.yaml", 3, 5, "unknown key 'enginee'")]), 2),
        (ParseError("not sysbench's", line=3, text="hello"), 2),
        (InfrastructureError("disk full"), 3),
        (EngineUnavailable("docker does not answer"), 3),
        (StatsFileError("a.stats.gz: byte 17"), 3),
        (ProtocolError("not a treatment"), 3),
        (WeighbridgeError("anything else"), 3),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "a.yaml"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_error_is_one_message_and_an_exit_code(call, capsys, error, status):
    """Each kind of error leads to its documented code, and stderr holds one line of text without a traceback."""
    assert call("weigh-things", run=raising(error)) == status
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("bench-master: ")
    assert (str(error) or "interrupted") in line or line.endswith("a.yaml: Permission denied")


def test_all_problems_of_a_scenario_are_printed(call, capsys):
    """Each problem has a line with its place, in file order."""
    problems = [Problem("a.yaml", 9, 1, "second"), Problem("a.yaml", 3, 5, "first")]
    assert call("weigh-things", run=raising(ScenarioError(problems))) == 2
    assert capsys.readouterr().err.splitlines() == [
        "bench-master: a.yaml:3:5: first",
        "bench-master: a.yaml:9:1: second",
    ]


def test_an_internal_error_asks_for_a_report(call, capsys):
    """An unexpected exception is named as internal, tells what to do, and counts as broken infrastructure."""
    assert call("weigh-things", run=raising(ZeroDivisionError("division by zero"))) == 3
    err = capsys.readouterr().err
    assert "internal error: ZeroDivisionError: division by zero" in err
    assert "--debug" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("argv", [("--debug", "weigh-things"), ("weigh-things", "--debug")])
def test_debug_adds_the_traceback(call, capsys, argv):
    """With --debug, on either side of the sub-command, the traceback comes too and the code stays the same."""
    assert call(*argv, run=raising(UsageError("no such file"))) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("bench-master: no such file\n")


def test_global_switches_work_on_either_side_of_the_command(call):
    """-v and -q mean the same before and after the sub-command, and default to off."""
    seen = []

    def run(options):
        seen.append(astuple(options))
        return 0

    for argv in (["-v", "weigh-things"], ["weigh-things", "-v"], ["-q", "weigh-things"], ["weigh-things", "-q"]):
        call(*argv, run=run)
    call("weigh-things", run=run)
    assert seen == [
        (True, False, False),
        (True, False, False),
        (False, True, False),
        (False, True, False),
        (False, False, False),
    ]


def test_an_unknown_word_gets_no_suggestion(call, capsys):
    """Where no sub-command is near, the choices are listed and none is suggested."""
    with pytest.raises(SystemExit):
        call("xyzzy")
    err = capsys.readouterr().err
    assert "list-things" in err
    assert "did you mean" not in err


def test_the_bare_program_prints_its_help(call, capsys):
    """Who types the name alone asks what there is; switches without a sub-command are a mistake."""
    assert call() == 0
    shown = capsys.readouterr().out
    assert "list-things" in shown
    assert "--help-all" in shown
    with pytest.raises(SystemExit) as leaving:
        call("-q")
    assert leaving.value.code == ExitCode.USAGE
    assert "SUB-COMMAND" in capsys.readouterr().err


def test_version_goes_to_stdout(call, capsys):
    """--version prints one line with all that a report of a fault has to name, and is no error."""
    with pytest.raises(SystemExit) as leaving:
        call("--version")
    assert leaving.value.code == 0
    pattern = r"weighbridge \S+ \(commit [0-9a-f]{12}(-dirty)?, Python 3\.\d+\.\d+\S*, libzmq 4\.\d+\.\d+\)\n"
    assert re.fullmatch(pattern, capsys.readouterr().out)


def test_every_command_is_listed_and_can_be_configured():
    """The modules of commands are those of the list, and with those of features they make one parser, in order."""
    modules = [info.name for info in pkgutil.iter_modules(commands.__path__)]
    found = {name.replace("_", "-"): importlib.import_module(f"{commands.__name__}.{name}") for name in modules}
    runnable = {name for name, one in found.items() if hasattr(one, "run") or hasattr(one, "members")}
    assert runnable == set(KERNEL_COMMANDS)
    assert list(cli.build_parser().sub_commands()) == sorted(all_commands())
    assert runnable <= set(all_commands())


@pytest.fixture
def registered_commands(monkeypatch):
    """Register sub-commands as other packages would, by name and object, besides those that are installed."""
    entries = []

    def register(**found):
        for name, one in found.items():
            monkeypatch.setattr(sys.modules[__name__], name, one, raising=False)
            place = one if isinstance(one, str) and ":" in one else f"{__name__}:{name}"
            entries.append(EntryPoint(name.replace("_", "-"), place, GROUP))
        all_commands.cache_clear()

    monkeypatch.setattr(commands, "registered", lambda group: [one for one in entries if one.group == group])
    yield register
    all_commands.cache_clear()


def test_a_package_of_its_own_brings_a_command(registered_commands, monkeypatch, capsys):
    """Its help is listed with the others, and it is loaded when it is typed."""
    monkeypatch.setitem(sys.modules, "some_feature", a_command(lambda _options: 7))
    registered_commands(weigh_ships=CommandEntry("weigh a ship where it floats", "some_feature"))
    assert cli.run_command_line([]) == 0
    assert re.search(r"More commands: [^\0]*\bweigh-ships\b", capsys.readouterr().out)
    with pytest.raises(SystemExit):
        cli.run_command_line(["--help-all"])
    assert re.search(r"weigh-ships +weigh a ship where it floats", capsys.readouterr().out)
    assert cli.run_command_line(["-q", "weigh-ships"]) == 7


def test_a_broken_registration_harms_no_other_command(registered_commands, capsys):
    """One that cannot be imported, is something else, or has a name of ours is left out."""
    registered_commands(odd="no entry", doctor=CommandEntry("another doctor", "some_feature"))
    registered_commands(gone="there.is.no.such:thing")
    assert set(all_commands()) == set(KERNEL_COMMANDS)
    assert all_commands()["doctor"].help == KERNEL_COMMANDS["doctor"]
    with pytest.raises(SystemExit) as exited:
        cli.run_command_line(["gone"])
    assert exited.value.code == 2
    err = capsys.readouterr().err
    assert "'gone'" in err.splitlines()[-1]
    for name, problem in (("odd", "is no CommandEntry"), ("doctor", "has the name of another one")):
        assert re.search(rf"sub-command '{name}' \(test_cli:{name}\) is left out: it {problem}", err)
    assert "sub-command 'gone' (there.is.no.such:thing) is left out: it cannot be loaded: " in err


def test_every_command_is_in_the_first_help():
    """With its meaning, or at least by name."""
    first = " ".join(cli.build_parser([]).format_help().split())
    assert not [name for name in all_commands() if not re.search(rf"(?<![\w-]){name}(?![\w-])", first)]


@pytest.mark.parametrize("name", ["run-scenario", "report-scenario"])
def test_the_first_help_of_a_command_has_options_of_its_own(name):
    """What it names is there, and it says how to see the rest."""
    assert f"{name} --help-all" in cli.build_parser([name]).sub_commands()[name].format_help()


HELP_LOADS = {"gevent", "msgspec", "numpy", "yaml", "zmq", "bench_workloads", "bench_worker"}
"""What ``--help`` has no use for, each of which takes longer to load than it takes itself."""


@pytest.mark.parametrize("words", [[], ["--help"], ["-q", "--help"]])
def test_help_loads_next_to_nothing(words):
    """Neither the event loop nor any command, only what other packages registered."""
    program = (
        "import json, sys, bench_master.__main__ as program\n"
        "try:\n    program.main()\nexcept SystemExit:\n    print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=END_S, check=True
    )
    assert "run-scenario" in done.stdout
    loaded = json.loads(done.stderr)
    assert HELP_LOADS & set(loaded) == set()
    assert [name for name in loaded if name.startswith("bench_master.commands.")] == []


def test_a_closed_output_pipe_is_no_error(monkeypatch, capsys):
    """With `| head` the command ends in silence, and nothing complains when stdout is flushed at the exit."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        status = run_guarded(lambda: stdout.write("x" * 100) and 0, program="bench-master", debug=False)
        stdout.write("more")
        stdout.flush()
        monkeypatch.undo()
    assert status == 0
    assert capsys.readouterr().err == ""


def bench_master(redirection):
    """Run the real program in a shell of its own, and return how it ended."""
    command = f"exec {sys.executable} -m bench_master -q list scenarios {redirection}"
    return subprocess.run(["sh", "-c", command], capture_output=True, timeout=END_S, check=False)


@pytest.mark.parametrize("redirection", [">&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_error(redirection):
    """A caller who closed a standard stream asked for silence there, and gets it without a complaint."""
    done = bench_master(redirection)
    assert (done.returncode, done.stderr) == (0, b"")


def test_unencodable_characters_are_escaped(monkeypatch):
    """Output for a terminal that knows no such letter is written to its end, escaped so that JSON stays JSON."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    harden_streams()
    line = '"gr\u00fcn \U0001f40b"\n'
    assert run_guarded(lambda: sys.stdout.write(line) and 0, program="bench-master", debug=False) == 0
    assert raw.getvalue() == b'"gr\\u00fcn \\ud83d\\udc0b"\n'
    assert json.dumps(json.loads(raw.getvalue()), ensure_ascii=False) == line.strip()


INTERRUPTED = """
from gevent import monkey
monkey.patch_all()
import os, signal, sys, gevent
from bench_common.guard import run_guarded, silence_interrupts
silence_interrupts()
gevent.spawn_later(0, os.kill, os.getpid(), signal.SIGINT)
sys.exit(run_guarded(lambda: gevent.sleep(30) or 0, program="bench-master", debug=False))
"""


def test_an_interrupt_in_the_event_loop_prints_no_traceback():
    """Ctrl-C while a command waits gives the exit code of an interrupt, and no output of the event loop."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, timeout=END_S, check=False)
    assert (done.returncode, done.stderr) == (130, b"bench-master: interrupted\n")


def test_a_full_output_device_is_named():
    """Output that stdout rejects is one error that names stdout, with exit code 3."""
    command = [sys.executable, "-m", "bench_master", "validate-scenario", "--schema"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=END_S, check=False)
    assert (ended.returncode, ended.stderr) == (3, "bench-master: stdout: No space left on device\n")


def unwritable(kind):
    """Return a descriptor that rejects output: a full device, or a pipe without a reader."""
    if kind == "full":
        return os.open("/dev/full", os.O_WRONLY)
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("kind", ["full", "pipe"])
def test_the_exit_code_does_not_depend_on_stderr(kind):
    """Neither a full disk nor a missing reader changes the error."""
    stderr = unwritable(kind)
    command = [sys.executable, "-m", "bench_master", "run-scenario", "-f", "no-such-scenario"]
    try:
        ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=stderr, timeout=END_S, check=False)
    finally:
        os.close(stderr)
    assert ended.returncode == 2


@pytest.mark.parametrize("kind", ["full", "pipe"])
def test_output_that_stderr_rejects_is_dropped(monkeypatch, kind):
    """The command continues as if it had been written."""
    stream = os.fdopen(unwritable(kind), "w", 1)
    monkeypatch.setattr(sys, "stderr", stream)
    harden_streams()
    assert sys.stderr.write("word\n") == 5
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        stream.close()


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["run-scenario", "quickstart"], "(did you mean '-f quickstart'?)"),
        (["run-scenario", "--noop", "--workers", "1", "quickstart"], "(did you mean '-f quickstart'?)"),
        (["report-scenario", "a.stats.gz", "--csv"], "(did you mean '-s a.stats.gz'?)"),
    ],
)
def test_a_word_without_its_flag_gets_the_flag_suggested(capsys, argv, hint):
    """A scenario or stats file that is named without its flag gives a usage error that shows the right way."""
    with pytest.raises(SystemExit) as ended:
        cli.run_command_line(argv)
    assert ended.value.code == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["run-scenario", "-f", "x", "--wokers", "1"], "run-scenario: unknown option --wokers (did you mean"),
        (
            ["run-scenario", "-f", "x", "--noopp=1"],
            "run-scenario: unknown option --noopp (did you mean '--noop'?)",
        ),
        (["run-scenario", "-f", "x", "y"], "run-scenario: unexpected argument 'y'"),
        (["report-scenario"], "report-scenario: the following arguments are required: -s/--stats-file"),
        (["run-scenaro"], "unknown sub-command 'run-scenaro' (did you mean 'run-scenario'?)"),
        (["list-engines"], "unknown sub-command 'list-engines' (did you mean 'list engines'?)"),
        (["report"], "unknown sub-command 'report' (did you mean 'report-scenario'?)"),
        (["lost-and-found"], "unknown sub-command 'lost-and-found'; one of alternate,"),
        (
            ["list"],
            "list: the following arguments are required: SUB-COMMAND, one of engines, scenarios, measures, workloads",
        ),
        (["list", "engine"], "list: unknown sub-command 'engine' (did you mean 'engines'?)"),
        (
            ["run-scenario", "-f", "x", "--repeats=9"],
            "unknown option --repeats (a key of the scenario: '--set repeats=...')",
        ),
        (["run-scenario", "-f", "x", "--skip-limit"], "(bucketbench's --skip-limit is --skip-host-ceiling)"),
        (["run-scenario", "-f", "x", "--benchmark", "y"], "(bucketbench's --benchmark is -f FILE)"),
        (["run-scenario", "-f", "x", "-s", "run.json"], "'run.json': expected a name that ends in .gz, such as"),
        (["run-scenario", "-f", "x", "-s"], "expected one argument (bucketbench's -s is --skip-host-ceiling)"),
        (["run-scenario", "-f", "x", "-o"], "expected one argument (bucketbench's -o is --overhead)"),
        (["run-scenario", "-f", "x", "-l"], "unknown option -l (bucketbench's -l is --legacy)"),
        (["--colour", "doctor"], "unknown option --colour"),
        (["cleanup-containers", "--run", ""], "argument --run: '': expected the id of a run"),
        (["run-scenario", "-f", "x", "--margin", "0"], "argument --margin: '0': expected a percentage such as 3%;"),
        (["list", "engines", "--format", "jsn"], "argument --format: 'jsn': expected one of "),
        (["completion", "fish-shell"], "argument shell: 'fish-shell': expected one of bash, zsh, fish; see"),
    ],
)
def test_a_wrong_option_is_a_one_line_error(capsys, argv, line):
    """The line names the command that refuses it and where its help is; no usage of thirty lines stands before it."""
    with pytest.raises(SystemExit) as ended:
        cli.run_command_line(argv)
    assert ended.value.code == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith("bench-master")
    assert line in message
    assert message.endswith(" --help")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-f", ""], "'': expected the file or the name of a scenario"),
        (["-f", "noop", "-s", ""], "expected a file name"),
        (["-f", "noop", "--dry-run", "--csv", "--format", "json"], "csv and json both go to standard output"),
        (["-f", "noop", "--noop", "--format", "json=none/x.json"], "the folder none does not exist"),
        (["-f", "noop", "--dry-run", "--pctile", "101"], "argument --pctile: '101'"),
        (["-f", "noop", "--dry-run", "--worker-timeout", "-1"], "argument --worker-timeout: '-1': "),
        (["-f", "noop", "--dry-run", "-r", "soon"], "argument -r/--run-seconds: 'soon': "),
        (["-f", "noop", "--dry-run", "-r", "0"], "argument -r/--run-seconds: '0': expected more than 0 seconds"),
        (["-f", "noop", "--noop", "--zmq-bind-ip", ""], "expected an IP address of this host"),
        (["-f", "noop", "--noop", "--zmq-bind-ip", "foo"], "--zmq-bind-ip foo: expected an IP address"),
        (["-f", "noop", "--noop", "--zmq-bind-ip", "300.1.1.1"], "--zmq-bind-ip 300.1.1.1: expected an IP address"),
        (
            ["-f", "noop", "--noop", "--zmq-control-port", "7001", "--zmq-results-port", "7001"],
            "--zmq-control-port and --zmq-results-port are both 7001",
        ),
    ],
)
def test_invalid_arguments_are_refused_before_the_run(capsys, monkeypatch, tmp_path, flags, message):
    """A wrong argument is a usage error at once, with a dry run too, and leaves nothing behind."""
    monkeypatch.chdir(tmp_path)
    try:
        status = cli.run_command_line(["run-scenario", *flags])
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.rglob("*.gz")) == []


@pytest.mark.parametrize("program", ["bench_master", "bench_worker"])
def test_an_interrupt_while_loading_ends_at_once(program):
    """Ctrl-C before the program is there ends it with 130, in silence, wherever in an import it comes."""
    code = (
        "import os, runpy, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'gevent.monkey' or name.endswith('.cli'):\n"
        "            try: os.kill(os.getpid(), signal.SIGINT); sum(range(100))\n"
        "            except BaseException: pass\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        f"sys.argv = ['x', '--version']; runpy.run_module('{program}', run_name='__main__')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=END_S, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
