"""The format of an inventory: every key of ``hosts.yaml`` with its shape, default and meaning, in one table.

`docs/fleet.rst` is tested against it. What a host does not say is said by its groups, and then by ``defaults``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from bench_common.arguments import MAX_SLOTS, NAME_PATTERN
from bench_master.fleet.hosts import DEFAULT_CONCURRENCY, SSH_PORT
from bench_master.scenario.composites import Field, ListOf, MapOf, Record
from bench_master.scenario.diagnostics import Findings
from bench_master.scenario.tree import Entries, Leaf, Node
from bench_master.scenario.types import WHOLE, Boolean, Choice, Measured, Shape, Text

HOST_PATTERN: Final = r"^[A-Za-z0-9\[][A-Za-z0-9._,\[\]-]{0,127}$"
"""What a host may be called before its ranges are expanded."""
GROUP_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
MERGED: Final = ("labels", "env", "settings")
"""The mappings of which a host, its groups and the defaults each give a part."""


@dataclass(frozen=True)
class OrNothing(Shape):
    """A mapping, of which there may be nothing at all: a host that is only named."""

    record: Record

    @property
    def expected(self) -> str:
        """What is wanted."""
        return self.record.expected

    def read(self, node: Node, findings: Findings) -> Any:
        """Return the mapping's values."""
        if isinstance(node, Leaf) and node.empty:
            return self.record.read(Entries(node.place), findings)
        return self.record.read(node, findings)

    def schema(self) -> dict[str, Any]:
        """Return the shape as JSON Schema."""
        return {"anyOf": [{"type": "null"}, self.record.schema()]}


def inventory_format(launchers: tuple[str, ...]) -> Record:
    """Return the shape of a whole inventory; `launchers` are those that are installed."""
    settings = _settings(launchers)
    own = (
        Field(
            "address", Text("a host's name or IP address", r"^[^\s/@]+$"), "how SSH reaches it (default: its name)"
        ),
        Field(
            "services_address",
            Text("an IP address", r"^[^\s/@]+$"),
            "where other hosts reach services that run on it (default: its address, if that is its own)",
        ),
        Field("groups", ListOf(Text("a group"), unique=True), "the groups that it is in; a later one wins"),
    )
    group = OrNothing(Record("group", settings))
    host = OrNothing(Record("host", (*own, *settings)))
    return Record(
        "inventory",
        (
            Field("defaults", Record("defaults", settings), "what holds for every host that says nothing else"),
            Field(
                "groups",
                MapOf("groups by name (letters, digits and . _ -)", GROUP_PATTERN, group),
                "what holds for the hosts of a group",
            ),
            Field(
                "hosts",
                MapOf("hosts by name, such as blade-1 or blade[01-16]", HOST_PATTERN, host, at_least=1),
                "the hosts",
                required=True,
            ),
        ),
    )


def _settings(launchers: tuple[str, ...]) -> tuple[Field, ...]:
    return (
        Field(
            "environment",
            Text("an environment: a word of letters, digits and _ . + -", NAME_PATTERN),
            "what its workers call their environment (default: as the host looks)",
        ),
        Field(
            "labels",
            MapOf("labels", r"^[^=\s]+$", Text(may_be_empty=True)),
            "saved with the results",
        ),
        Field("workers", Measured(WHOLE, minimum=1, maximum=256), "how many workers it runs", 1),
        Field(
            "concurrency",
            Measured(WHOLE, minimum=1, maximum=MAX_SLOTS),
            "jobs at once of each worker, at most",
            DEFAULT_CONCURRENCY,
        ),
        Field(
            "env",
            MapOf("environment variables", r"^[A-Za-z_][A-Za-z0-9_]*$", Text(may_be_empty=True)),
            "environment variables of its workers, by which engines are set, such as DOCKER_HOST",
        ),
        Field("allow_host_mounts", Boolean(), "let scenarios mount directories of the host", default=False),
        Field("user", Text("a user's name", r"^[^\s:@/]+$"), "who to log in as (default: your name here)"),
        Field("port", Measured(WHOLE, minimum=1, maximum=65535), "port of its SSH server", SSH_PORT),
        Field("key", Text("a file"), "private key to log in with (default: the agent's, and those in ~/.ssh)"),
        Field(
            "jump",
            Text("a host of this inventory, or [user@]address[:port]", r"^[^\s/]+$"),
            "the host to go through",
        ),
        Field("python", Text("a program"), "Python 3.11 or newer on it (default: the first that is found)"),
        Field(
            "directory",
            Text("a directory"),
            "where on it Weighbridge is kept; from its home (default: .local/share/weighbridge)",
        ),
        Field("master", Text("a host's name or IP address", r"^[^\s/@]+$"), "how it reaches the master"),
        Field("tunnel", Boolean(), "reach the master through the SSH connection", default=False),
        Field("launcher", Choice("launcher", launchers), "what starts its workers", "ssh"),
        Field(
            "settings",
            MapOf("settings of the launcher", r"^[A-Za-z0-9_.-]+$", Text(may_be_empty=True)),
            "of the launcher",
        ),
    )
