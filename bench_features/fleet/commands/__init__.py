"""`bench-master fleet`: workers on the hosts of an inventory, which wait for runs."""

from __future__ import annotations

from typing import Final

from bench_master.commands import CommandEntry

MEMBERS: Final = {
    "list": CommandEntry("list the workers that wait for this master, and their state", f"{__name__}.list"),
    "logs": CommandEntry("fetch the logs of the workers of an inventory", f"{__name__}.logs"),
    "start": CommandEntry(
        "start workers on the hosts of an inventory, where they wait for this master", f"{__name__}.start"
    ),
    "stop": CommandEntry("stop the workers of an inventory, or those that wait for this master", f"{__name__}.stop"),
}
EPILOG = """\
run-scenario -i HOSTS.yaml needs none of these: it starts workers for one run, and stops them at its end.

  bench-master fleet start -i hosts.yaml     # workers that wait for runs
  bench-master fleet list                    # which are there, with their load, clocks and engines
  bench-master run-scenario -f quickstart --expect 2
  bench-master fleet stop -i hosts.yaml
"""


def members() -> dict[str, CommandEntry]:
    """Return the sub-commands by name, in order."""
    return MEMBERS
