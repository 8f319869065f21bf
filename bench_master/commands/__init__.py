"""The sub-commands of `bench-master`: here one module for each, named like it, with dashes as underscores.

Those of features, and of packages of others, are registered under ``weighbridge.commands``: the name of the entry
point is the sub-command, and its value is a `CommandEntry`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Final, NamedTuple

from bench_common import registered

GROUP: Final = "weighbridge.commands"


class CommandEntry(NamedTuple):
    """A sub-command that is registered: importing it must cost next to nothing, since ``--help`` lists it."""

    help: str
    """What it does, for ``--help``, such as ``print the report of a stats file``."""
    module: str
    """The dotted name of the module to load when it is typed."""


KERNEL_COMMANDS: Final = {
    "archive": "keep runs in an archive, find them again, compare them, and see since when something changed",
    "build-images": "build the images that scenarios use, with debootstrap if no registry is reachable",
    "cleanup-containers": "remove what finished runs left on this machine (only what carries Weighbridge's label)",
    "compare": "compare runs with each other: two builds, a run with earlier ones, or the history of a folder",
    "completion": "print a script that completes sub-commands, options and names in a shell",
    "doctor": "check whether this machine is fit to measure, and advise what to fix",
    "fetch-logs": "fetch the logs of the workers of an inventory",
    "init": "write a commented scenario to start from, by three questions or three options",
    "keygen": "make keys for the master and its workers, list and revoke them",
    "kill-workers": "stop the workers of an inventory, or those that wait for this master",
    "list-engines": "list the engines that are usable on this machine, and why the others are not",
    "list-scenarios": "list the ready-made scenarios with time, disk and images; run-scenario -f NAME runs one",
    "list-workers": "list the workers that wait for this master, and their state",
    "list-workloads": "list the guest benchmarks, or the parameters and metrics of one",
    "man-page": "print the manual page in the format of man(7)",
    "report-scenario": "print the report of a stats file",
    "run-scenario": "run a scenario on local or remote workers, save the stats file and print the report",
    "serve": "show the archive in a browser: runs, comparisons, series and hosts, read-only",
    "show-output": "print what the tool of a job printed, as it is kept in the stats file",
    "start-workers": "start workers on the hosts of an inventory, where they wait for this master",
    "validate-scenario": "check scenarios and list all of their errors, or print the JSON Schema of the format",
    "weigh": "measure one command under some engines, without a scenario file",
}
"""What each sub-command of this folder does, for ``--help``: to list them, none has to be loaded."""


@cache
def all_commands() -> dict[str, CommandEntry]:
    """Return every sub-command by name, in order; none is loaded.

    A registered one that cannot be imported, or has the name of one of ours, is left out: it must not take the others
    with it. Reads the metadata of all installed packages, which takes milliseconds.
    """
    found = own_commands()
    for point in registered(GROUP):
        # Whatever is wrong with a package of others, the other sub-commands work.
        with suppress(Exception):
            entry = point.load()
            if isinstance(entry, CommandEntry):
                found.setdefault(point.name, entry)
    return dict(sorted(found.items()))


def own_commands() -> dict[str, CommandEntry]:
    """Return the sub-commands of this folder by name."""
    return {
        name: CommandEntry(what, f"{__name__}.{name.replace('-', '_')}") for name, what in KERNEL_COMMANDS.items()
    }


def find_command(word: str) -> CommandEntry | None:
    """Return the sub-command of that name, or None; other packages are asked only about a name that is not ours."""
    return own_commands().get(word) or all_commands().get(word)
