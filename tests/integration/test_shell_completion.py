"""The completion script in a real bash; those of the other shells come from the same parser."""

import os
import shutil
import subprocess

import pytest
from busybox_image import skip_or_fail
from command_line import run_in_process
from deadlines import START_S

from bench_master.commands.completion import PLACES


def require(tool):
    """Skip, or fail in CI, where a tool is not installed."""
    if shutil.which(tool) is None:
        skip_or_fail(f"{tool} is not installed")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """Each shell's script, as the command prints it, in a folder that has a file to complete."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "quiet.yaml").touch()
    for shell in PLACES:
        (folder / shell).write_text(printed("completion", shell))
    return folder


def printed(*words):
    """Return what a command of `bench-master` prints."""
    status, out, err = run_in_process(words, ".", os.environ)
    assert (status, err) == (0, "")
    return out


def bash(scripts, line):
    """Return what bash offers at the end of a line."""
    words = line.split(" ")
    program = (
        f"source ./bash; COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); COMP_CWORD={len(words) - 1}; "
        f"COMP_LINE='{line}'; COMP_POINT={len(line)}; "
        f"$(complete -p bench-master | sed 's/.*-F \\([^ ]*\\) .*/\\1/') bench-master '{words[-1]}' '{words[-2]}'; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return set(output(["bash", "--norc", "-c", program], scripts))


def output(argv, folder):
    """Return the lines that a program prints, which must not complain."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=START_S, cwd=folder, check=True)
    assert done.stderr == ""
    return done.stdout.split("\n")


def test_a_shell_completes_from_the_parser(scripts):
    """Sub-commands, options, choices, ready-made scenarios, workloads, engines and files are offered."""
    require("bash")
    for line, expected in (
        ("list ", {"engines", "measures", "scenarios", "workloads"}),
        ("fleet st", {"start", "stop"}),
        ("run-scenario --se", {"--seed", "--set"}),
        ("completion ", {"bash", "fish", "zsh"}),
        ("list workloads sysbench-", {"sysbench-cpu", "sysbench-memory"}),
        ("run-scenario -f qui", {"quickstart", "quiet.yaml"}),
        ("weigh nati", {"native"}),
        ("weigh --stats-file quie", {"quiet.yaml"}),
        ("init --job life", {"lifecycle"}),
        ("init --engines nati", {"native"}),
    ):
        assert expected <= bash(scripts, f"bench-master {line}")


@pytest.mark.parametrize("shell", PLACES)
def test_each_shell_has_a_script(scripts, shell):
    """It names the sub-commands."""
    assert "run-scenario" in (scripts / shell).read_text()


def test_a_script_is_installed_where_its_shell_looks(tmp_path):
    """In the user's own folder, which need not be there; what is in the way is told."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    status, out, err = run_in_process(
        ("completion", "bash", "--install"), tmp_path, environ | {"HOME": str(tmp_path / "home")}
    )
    path = tmp_path / "home/.local/share/bash-completion/completions/bench-master"
    assert (status, out, err) == (0, "", f"{path}: written; a new bash reads it\n")
    assert path.read_text() == printed("completion", "bash")
    (tmp_path / "file").touch()
    blocked = environ | {"XDG_CONFIG_HOME": str(tmp_path / "file")}
    status, _, err = run_in_process(("completion", "fish", "--install"), tmp_path, blocked)
    assert (status, err) == (
        2,
        f"bench-master: {tmp_path}/file/fish/completions/bench-master.fish: cannot write: Not a directory\n",
    )
