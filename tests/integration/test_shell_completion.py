"""Completion scripts in the real shells, and the manual page in the real formatter."""

import os
import pty
import re
import select
import shutil
import subprocess
import time
from argparse import SUPPRESS

import pytest
from busybox_image import skip_or_fail
from command_line import run_in_process
from deadlines import START_S

from bench_common.cli import CommandParser
from bench_master.cli import build_parser
from bench_master.commands.completion import SHELLS


def require(tool):
    """Skip, or fail in CI, where a tool is not installed."""
    if shutil.which(tool) is None:
        skip_or_fail(f"{tool} is not installed")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """Each shell's script, as the command prints it, in a folder that has a file to complete."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "quiet.yaml").touch()
    for shell in SHELLS:
        (folder / shell).write_text(printed("completion", shell))
    (folder / "zfunc").mkdir()
    shutil.copy(folder / "zsh", folder / "zfunc" / "_bench-master")
    return folder


def printed(*words):
    """Return what a command of `bench-master` prints."""
    status, out, err = run_in_process(words, ".", os.environ)
    assert (status, err) == (0, "")
    return out


def bash(scripts, line, _expected):
    """Return what bash offers at the end of a line."""
    words = line.split(" ")
    program = (
        f"source ./bash; COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); COMP_CWORD={len(words) - 1}; "
        f"COMP_LINE='{line}'; COMP_POINT={len(line)}; "
        f"$(complete -p bench-master | sed 's/.*-F \\([^ ]*\\) .*/\\1/') bench-master '{words[-1]}' '{words[-2]}'; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return set(output(["bash", "--norc", "-c", program], scripts))


def fish(scripts, line, _expected):
    """Return what fish offers at the end of a line."""
    told = output(["fish", "--no-config", "-c", f"source ./fish; complete -C '{line}'"], scripts)
    return {offer.partition("\t")[0] for offer in told}


def zsh(scripts, line, expected):
    """Return the words that zsh shows after a tab at the end of a line, as soon as the expected ones are there."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(scripts)
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(scripts),
            "TERM": "vt100",
            "PS1": "rea%ddy",
            "LANG": "C.UTF-8",
        }
        os.execvpe("zsh", ["zsh", "-f", "-i"], environ)
    try:
        # As documented: zsh loads the script from a folder of functions. Offers must fit without a question.
        hear(terminal, {f"rea{scripts}dy"})
        setup = "fpath=($PWD/zfunc $fpath); autoload -Uz compinit; compinit -u -d $PWD/dump; LISTMAX=0; PS1=%%%d%%"
        os.write(terminal, f"{setup}\n".encode())
        hear(terminal, {f"%{scripts}%"})
        os.write(terminal, f"{line}\t".encode())
        return hear(terminal, expected)
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def hear(terminal, expected):
    """Return the words that a terminal shows until the expected ones are among them, or until the deadline."""
    shown, words, deadline = "", set(), time.monotonic() + START_S
    while not expected <= words and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 65536).decode("utf-8", "replace")
            words = set(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x09\x0b-\x1f]", " ", shown).split())
    return words


def output(argv, folder):
    """Return the lines that a program prints, which must not complain."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=START_S, cwd=folder, check=True)
    assert done.stderr == ""
    return done.stdout.split("\n")


@pytest.mark.parametrize("offers", [bash, zsh, fish], ids=lambda function: function.__name__)
def test_a_shell_completes_from_the_parser(scripts, offers):
    """Sub-commands, options, choices, ready-made scenarios, workloads, engines and files are offered."""
    require(offers.__name__)
    for line, expected in (
        ("list ", {"engines", "measures", "scenarios", "workloads"}),
        ("fleet st", {"start", "stop"}),
        ("run-scenario --se", {"--seed", "--set"}),
        ("completion ", {"bash", "fish", "zsh"}),
        ("list workloads sysbench-", {"sysbench-cpu", "sysbench-memory"}),
        ("run-scenario -f qui", {"quickstart", "quiet.yaml"}),
        ("weigh nati", {"native"}),
    ):
        assert expected <= offers(scripts, f"bench-master {line}", expected)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_valid(scripts, shell):
    """The shell itself finds no fault in its syntax."""
    require(shell)
    assert output([shell, "-n", shell], scripts) == [""]


def test_the_manual_page_is_valid_and_has_each_option(scripts):
    """groff has no warning, and each sub-command and option of the parser is on the page."""
    require("groff")
    page = printed("man-page")
    argv = ["groff", "-man", "-Tutf8", "-ww", "-rLL=500n", "-P-cbou"]
    done = subprocess.run(argv, input=page.encode(), capture_output=True, timeout=START_S, check=True)
    assert done.stderr == b""
    text = done.stdout.decode().replace("\N{HYPHEN}", "-").replace("\N{MINUS SIGN}", "-")
    words = set(text.replace(",", " ").split())
    parsers: list[CommandParser] = [build_parser(), *build_parser().sub_commands().values()]
    expected = {
        name
        for parser in parsers
        for one in parser.arguments
        for name in one.option_strings
        if one.help not in (None, SUPPRESS)
    }
    assert {*expected, *build_parser().sub_commands()} - words == set()
