"""`bench-master completion`: print or install a script that completes sub-commands, options and names in a shell.

`shtab` writes it from the parser itself, for all three shells, without running this program at each key. What the
parser cannot say is added here: which arguments are files, and the names of ready-made scenarios, workloads
and engines.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Struct

from bench_common.engine_traits import engine_names
from bench_common.errors import UsageError
from bench_common.options import Option
from bench_common.streams import tell
from bench_master.scenario.yaml_tree import builtin_scenarios
from bench_workloads.registry import workload_classes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_common.cli import CommandParser


PLACES: Final = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/{}"),
    "zsh": ("", ".zfunc", "_{}"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/{}.fish"),
}
"""Where each shell looks: below the folder that this variable names, if it is set, or else below this one at home."""
_ZSH: Final = ", with these lines in ~/.zshrc: fpath+=~/.zfunc; autoload -Uz compinit; compinit"
EPILOG: Final = f"""\
Where --install writes it:
  bash  ~/.local/share/bash-completion/completions/
  zsh   ~/.zfunc/{_ZSH}
  fish  ~/.config/fish/completions/
"""
_SCENARIO: Final = "X.yaml"
"""What help calls a scenario: a file, or the name of a ready-made one."""
_WORKLOADS: Final = (("list workloads", "NAME"), ("parse-output", "WORKLOAD"), ("import-results", "WORKLOAD"))
"""The arguments that name a workload: sub-command and name in help."""
_ENGINES: Final = (("weigh", "ENGINE|COMMAND"), ("list engines", "NAME"), ("init", "A,B"))
"""The arguments that name engines; commands, which the first one may have, are completed by nothing."""


class Options(Struct, frozen=True):
    """The command line of `completion`."""

    shell: Annotated[str, Option("", "the shell: bash, zsh or fish", choices=tuple(PLACES))]
    install: Annotated[bool, Option("--install", "write the script where the shell looks for it")] = False


def run(options: Options) -> int:
    """Print the script, or install it."""
    script = completion_script(options.shell)
    if not options.install:
        sys.stdout.write(script)
        return 0
    from bench_common.streams import program_name

    variable, below_home, name = PLACES[options.shell]
    folder = Path(os.environ.get(variable) or Path.home() / below_home)
    path = folder / name.format(program_name())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}") from error
    tell(f"{path}: written; a new {options.shell} reads it{_ZSH if options.shell == 'zsh' else ''}")
    return 0


def completion_script(shell: str) -> str:
    """Return the script for a shell, one of `PLACES`."""
    import shtab

    from bench_master.cli import build_parser
    from bench_master.commands.init import job_names

    parser = build_parser()
    scenarios = _files_and_names("_bench_master_scenarios", tuple(builtin_scenarios()))
    for name, command in _all_sub_commands(parser).items():
        for action in command.arguments:
            if (name, action.metavar) in _WORKLOADS:
                action.choices = tuple(workload_classes())
            elif (name, action.metavar) == ("init", "WHAT"):
                action.choices = job_names()
            elif (name, action.metavar) in _ENGINES:
                action.choices = engine_names()
            elif action.choices is None and action.nargs != 0:
                words = _kind_of(action, {"file": shtab.FILE, "directory": shtab.DIRECTORY, "scenario": scenarios})
                if words is not None:
                    vars(action)["complete"] = words  # where shtab looks for it
    return shtab.complete(parser, shell=shell)


def _kind_of(action: argparse.Action, kinds: dict[str, Any]) -> Any:
    """Return what completes an argument, by its name in help; None where nothing does."""
    metavar = str(action.metavar)
    if metavar == _SCENARIO:
        return kinds["scenario"]
    if metavar.startswith("FILE") or metavar.endswith((".yaml", ".gz")) or metavar == "STATS":
        return kinds["file"]
    return kinds["directory"] if metavar in ("DIR", "FOLDER") else None


def _files_and_names(function: str, names: Sequence[str]) -> dict[str, Any]:
    """Return what completes files and these names, by shell, as shtab expects it."""
    words = shlex.join(names)
    return {
        "bash": function,
        "zsh": function,
        "fish": f"({function})",
        "preamble": {
            "bash": f'{function}() {{\n  compgen -W {shlex.quote(words)} -- "$1"\n  compgen -f -- "$1"\n}}\n',
            "zsh": f"{function}() {{\n  _alternative 'names:ready scenario:({words})' 'files:file:_files'\n}}\n",
            "fish": (
                f"function {function}\n  printf '%s\\n' {words}\n  __fish_complete_path (commandline -ct)\nend\n"
            ),
        },
    }


def _all_sub_commands(parser: CommandParser, words: str = "") -> dict[str, CommandParser]:
    """Return the parsers of the sub-commands by name; members of a group follow it, after its name."""
    found: dict[str, CommandParser] = {}
    for name, sub in parser.sub_commands().items():
        found[f"{words}{name}"] = sub
        found |= _all_sub_commands(sub, f"{words}{name} ")
    return found
