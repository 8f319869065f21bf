"""The sub-commands of `bench-master`: here one module for each, named like it, with dashes as underscores.

Those of features, and of packages of others, are registered under ``weighbridge.commands``: the name of the entry
point is the sub-command, and its value is a `CommandEntry`.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from bench_common import load_entry, registered
from bench_common.streams import program_name, tell

GROUP: Final = "weighbridge.commands"


class CommandEntry(NamedTuple):
    """A sub-command that is registered: importing it must cost next to nothing, since ``--help`` lists it."""

    help: str
    """What it does, for ``--help``, such as ``print the report of a stats file``."""
    module: str
    """The dotted name of the module to load when it is typed."""


KERNEL_COMMANDS: Final = {
    "build-images": "build the images that scenarios use, with debootstrap if no registry is reachable",
    "cleanup-containers": "remove what finished runs left on this machine (only what carries Weighbridge's label)",
    "compare": "compare runs with each other: two builds, a run with earlier ones, or the history of a folder",
    "completion": "print or install a script that completes commands, options and names in a shell",
    "doctor": "check whether this machine is fit to measure, and advise what to fix",
    "init": "write a commented scenario to start from, by three questions or three options",
    "keygen": "make keys for the master and its workers, list and revoke them",
    "list": "list engines, ready-made scenarios or workloads: what there is, and what can be used here",
    "report-scenario": "print the report of a stats file",
    "run-scenario": "run a scenario on local or remote workers, save the stats file and print the report",
    "show-output": "print what the tool of a job printed, as it is kept in the stats file",
    "validate-scenario": "check scenarios and list all of their errors, or print the JSON Schema of the format",
    "weigh": "measure a command under some engines, or compare commands, without a scenario file",
}
"""What each sub-command of this folder does, for ``--help``: to list them, none has to be loaded."""


@cache
def all_commands() -> dict[str, CommandEntry]:
    """Return every sub-command by name, in order; none is loaded.

    A registered one that cannot be imported, or has the name of one of ours, is left out, and told on stderr: it must
    not take the others with it. Reads the metadata of all installed packages, which takes milliseconds.
    """
    found = own_commands()
    for point in registered(GROUP):
        try:
            entry = load_entry(point)
            problem = "is no CommandEntry" if not isinstance(entry, CommandEntry) else ""
        except Exception as error:  # noqa: BLE001  somebody else's module may raise anything when imported
            problem = f"cannot be loaded: {type(error).__name__}: {error}"
        if not problem and point.name in found:
            problem = "has the name of another one"
        if problem:
            tell(f"{program_name()}: the sub-command {point.name!r} ({point.value}) is left out: it {problem}")
        else:
            found[point.name] = entry
    return dict(sorted(found.items()))


def own_commands() -> dict[str, CommandEntry]:
    """Return the sub-commands of this folder by name."""
    return {
        name: CommandEntry(what, f"{__name__}.{name.replace('-', '_')}") for name, what in KERNEL_COMMANDS.items()
    }


def find_command(word: str) -> CommandEntry | None:
    """Return the sub-command of that name, or None; other packages are asked only about a name that is not ours."""
    return own_commands().get(word) or all_commands().get(word)
