"""Reads ``hosts.yaml``: the hosts of a fleet, how each is reached, and which workers it runs.

Every key with its type, default and meaning is in one table, of which docs/reference/inventory-keys.rst is made. What
a host does not set itself comes from its groups, then from ``defaults``. All mistakes in a file are reported at once,
each with file, line and column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from bench_common import registered
from bench_common.argument_types import MAX_SLOTS, NAME_PATTERN, InvalidValue, host_address, host_name, strip_brackets
from bench_common.engine_traits import EngineLabel, parse_engine_label
from bench_common.errors import ScenarioError, UsageError, did_you_mean
from bench_common.files import open_regular
from bench_common.host_settings import setting_name
from bench_common.keys import KEY_NAME_PATTERN
from bench_features.fleet.hosts import (
    DEFAULT_CONCURRENCY,
    DEFAULT_DIRECTORY,
    SSH_PORT,
    FleetHost,
    Inventory,
    Login,
    expand,
    has_range,
)
from bench_master.scenario.diagnostics import Diagnostics, Located
from bench_master.scenario.types import (
    INVALID,
    WHOLE,
    Boolean,
    Choice,
    Field,
    ListOf,
    MapOf,
    Quantity,
    Record,
    Shape,
    Text,
)
from bench_master.scenario.yaml_tree import MappingNode, Node, ScalarNode, SourceLocation, TreeComposer, quote_node

HOST_PATTERN: Final = r"^[A-Za-z0-9\[][A-Za-z0-9._,\[\]-]{0,127}$"
"""Names of hosts before their ranges are expanded."""
GROUP_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
MERGED: Final = ("labels", "env", "settings")
"""Mappings that are merged from the defaults, the groups and the host."""


@dataclass(frozen=True)
class OptionalMapping(Shape):
    """A mapping that may be left empty, as for a host that has only a name."""

    record: Record

    @property
    def expected(self) -> str:
        """The expected value, for messages."""
        return self.record.expected

    def read(self, node: Node, findings: Diagnostics) -> Any:
        """Return the mapping's values."""
        if isinstance(node, ScalarNode) and node.empty:
            return self.record.read(MappingNode(node.place), findings)
        return self.record.read(node, findings)

    def schema(self) -> dict[str, Any]:
        """Return the shape as JSON Schema."""
        return {"anyOf": [{"type": "null"}, self.record.schema()]}


def inventory_format(launchers: tuple[str, ...]) -> Record:
    """Return the shape of an inventory; `launchers` are the installed ones."""
    settings = _settings(launchers)
    own = (
        Field(
            "address", Text("a host's name or IP address", r"^[^\s/@]+$"), "how SSH reaches it (default: its name)"
        ),
        Field(
            "services_address",
            Text("an IP address", r"^[^\s/@]+$"),
            "IP address at which other hosts reach its services, needed behind NAT or a forwarded port (default: its "
            "address, if that is its own)",
        ),
        Field(
            "groups", ListOf(Text("a group"), unique=True), "groups that it belongs to; a later one takes precedence"
        ),
    )
    group = OptionalMapping(Record("group", settings))
    host = OptionalMapping(Record("host", (*own, *settings)))
    return Record(
        "inventory",
        (
            Field("defaults", Record("defaults", settings), "settings for all hosts"),
            Field(
                "groups",
                MapOf("groups by name (letters, digits and . _ -)", GROUP_PATTERN, group),
                "settings for the hosts of a group",
            ),
            Field(
                "hosts",
                MapOf("hosts by name, such as blade-1 or blade[01-16]", HOST_PATTERN, host, min_items=1),
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
            "environment that its workers report (default: detected)",
        ),
        Field(
            "labels",
            MapOf("labels", r"^[^=\s]+$", Text(allow_empty=True)),
            "saved with the results",
        ),
        Field("workers", Quantity(WHOLE, minimum=1, maximum=256), "number of workers", 1),
        Field(
            "concurrency",
            Quantity(WHOLE, minimum=1, maximum=MAX_SLOTS),
            "maximum number of concurrent jobs of each worker",
            DEFAULT_CONCURRENCY,
        ),
        Field(
            "env",
            MapOf("environment variables", r"^[A-Za-z_][A-Za-z0-9_]*$", Text(allow_empty=True)),
            "environment variables of its workers, such as DOCKER_HOST to configure an engine; not for secrets",
        ),
        Field(
            "allow_host_mounts",
            Boolean(),
            "let scenarios mount directories of the host, and volumes of others",
            default=False,
        ),
        Field(
            "allow_cold",
            Boolean(),
            "let scenarios drop the host's page cache, or remove and fetch again the image, before each job",
            default=False,
        ),
        Field(
            "allow_host_settings",
            ListOf(Text("a host setting such as sys/kernel/rcu_expedited or vm.swappiness"), unique=True),
            "settings of the host's kernel that scenarios may change while a trial runs, such as vm.swappiness",
        ),
        Field("allow_native", Boolean(), "let scenarios run programs of the host (engine native)", default=True),
        Field(
            "engines",
            MapOf("engines by label", NAME_PATTERN, Text("ENGINE:PROGRAM or ENGINE:ADDRESS")),
            "engines that its workers have under labels, such as {new: 'crun:/opt/crun/bin/crun'}",
        ),
        Field(
            "index",
            Boolean(),
            "let the host's own pip install the packages of others from its own index; else everything is sent",
            default=True,
        ),
        Field(
            "user",
            Text("a user's name", r"^[^\s:@/]+$"),
            "user to log in as (default: that of ssh_config, or your local user name)",
        ),
        Field("port", Quantity(WHOLE, minimum=1, maximum=65535), "port of its SSH server", SSH_PORT),
        Field(
            "key",
            Text("a file"),
            "private key for the login; one with a passphrase must be loaded into the agent (default: the agent's "
            "keys and those in ~/.ssh)",
        ),
        Field(
            "jump",
            Text("a host of this inventory, or [user@]address[:port]", r"^[^\s/]+$"),
            "jump host to connect through: [user@]address[:port], or a host of this file (default: that of "
            "ssh_config, or none)",
        ),
        Field("python", Text("a program"), "Python 3.11 or newer to use there (default: the first one found)"),
        Field(
            "directory",
            Text("a directory"),
            "where Weighbridge is installed, relative to the home directory (default: .local/share/weighbridge)",
        ),
        Field(
            "master",
            Text("a host's name or IP address", r"^[^\s/@]+$"),
            "address at which it reaches the master (default: as seen by its SSH server)",
        ),
        Field("tunnel", Boolean(), "reach the master through the SSH connection", default=False),
        Field("launcher", Choice("launcher", launchers), "launcher that starts its workers", "ssh"),
        Field(
            "settings",
            MapOf("settings of the launcher", r"^[A-Za-z0-9_.-]+$", Text(allow_empty=True)),
            "settings of its launcher",
        ),
    )


LAUNCHERS_GROUP: Final = "weighbridge.launchers"
MAX_BYTES: Final = 1024**2

_JUMP: Final = re.compile(
    r"(?:(?P<user>[^@:]+)@)?(?P<address>\[[0-9a-fA-F:.]+\]|[^@:\[\]]+)(?::(?P<port>[0-9]{1,5}))?"
)


def launcher_names() -> tuple[str, ...]:
    """Return the names of the installed launchers."""
    return tuple(sorted({entry.name for entry in registered(LAUNCHERS_GROUP)}))


def load_inventory(path: Path) -> Inventory:
    """Return the inventory in a file; raise `UsageError` that lists every problem with its location."""
    try:
        with open_regular(path) as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: expected an inventory (docs/fleet.rst)") from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{path}: larger than {MAX_BYTES} bytes: not an inventory")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8") from error
    return parse_inventory(text, str(path), launcher_names())


def parse_inventory(text: str, path: str, launchers: tuple[str, ...]) -> Inventory:
    """Return the inventory in a text; raise `ScenarioError` with every problem."""
    composer = TreeComposer(text, path, kind="an inventory")
    root = composer.compose()
    if composer.problems:
        raise ScenarioError(composer.problems)
    if root is None or (isinstance(root, ScalarNode) and root.empty):
        raise ScenarioError(
            [SourceLocation(path, 1, 1).problem("the file is empty; an inventory has at least 'hosts'")]
        )
    if not isinstance(root, MappingNode):
        raise ScenarioError(
            [root.place.problem(f"an inventory is a mapping of keys to values, not {quote_node(root)}")]
        )
    findings = Diagnostics()
    read = inventory_format(launchers).read(root, findings)
    hosts = _Reader(read, root, findings).hosts()
    if findings.deep:
        raise ScenarioError(findings.problems)
    return Inventory(path, tuple(hosts))


class _Reader:
    """Makes the hosts: applies groups and defaults, expands ranges, resolves jump hosts."""

    def __init__(self, read: Mapping[str, Located[Any]], root: MappingNode, findings: Diagnostics) -> None:
        self._findings = findings
        self._defaults = _valid_part(read, "defaults")
        self._groups = _valid_part(read, "groups")
        self._hosts = _valid_part(read, "hosts")
        node = root.values.get("hosts")
        self._places = node.key_places if isinstance(node, MappingNode) else {}

    def hosts(self) -> list[FleetHost]:
        """Return every host; problems are added to the findings."""
        made: dict[str, tuple[FleetHost, Located[Any] | None]] = {}
        for key, given in self._hosts.items():
            if given.value is INVALID:
                continue
            for host, jump in self._hosts_of_entry(key, given):
                if host.name in made:
                    first = made[host.name][0].place
                    self._findings.add(
                        host.place, f"host '{host.name}' is already defined on line {first.line}: remove one"
                    )
                else:
                    made[host.name] = host, jump
        hosts = [self._with_jump(host, jump, made) for host, jump in made.values()]
        self._check_workers(hosts)
        return hosts

    def _hosts_of_entry(self, key: str, given: Located[Any]) -> Iterable[tuple[FleetHost, Located[Any] | None]]:
        place = self._places[key]
        names = self._expand(key, place)
        settings = self._settings(given.value)
        addresses = self._expand_addresses(key, names, settings.get("address"), names)
        services = self._services_addresses(key, names, settings.get("services_address"))
        for name, where, lent_at in zip(names, addresses, services, strict=False):
            if not KEY_NAME_PATTERN.fullmatch(name):
                self._findings.add(
                    place, f"{name!r}: expected up to 64 of A-Z a-z 0-9 . _ -, first a letter or digit"
                )
                continue
            yield replace(self._host(name, where, place, settings), services_address=lent_at), settings.get("jump")

    def _expand_addresses(
        self, key: str, names: list[str], given: Located[Any] | None, default: list[str]
    ) -> list[str]:
        """Return the address of each of an entry's hosts; an empty list if their numbers differ."""
        if given is None:
            return default
        addresses = self._expand(strip_brackets(given.value), given.place)
        if len(addresses) == len(names) or not names or not addresses:
            return addresses
        hint = "" if has_range(given.value) else ": each host needs its own, such as 10.0.0.[1-16]"
        self._findings.add(given.place, f"{len(addresses)} addresses for the {len(names)} hosts of '{key}'{hint}")
        return []

    def _services_addresses(self, key: str, names: list[str], given: Located[Any] | None) -> Sequence[str | None]:
        if given is None:
            return [None] * len(names)
        addresses = self._expand_addresses(key, names, given, [])
        try:
            return [host_address(address) for address in addresses]
        except InvalidValue as error:
            self._findings.add(given.place, str(error))
            return []

    def _host(
        self, name: str, address: str, place: SourceLocation, settings: Mapping[str, Located[Any]]
    ) -> FleetHost:
        def value(key: str, default: Any = None) -> Any:
            return settings[key].value if key in settings else default

        def texts(key: str) -> dict[str, str]:
            return {word: text.value for word, text in value(key, {}).items()}

        key = value("key")
        login = Login(address, value("port"), value("user"), (Path(key).expanduser(),) if key else ())
        return FleetHost(
            name,
            login,
            place,
            environment=value("environment"),
            labels=texts("labels"),
            groups=tuple(group.value for group in value("groups", ())),
            workers=value("workers", 1),
            concurrency=value("concurrency", DEFAULT_CONCURRENCY),
            env=texts("env"),
            allow_host_mounts=value("allow_host_mounts", False),
            allow_cold=value("allow_cold", False),
            allow_host_settings=self._host_settings(value("allow_host_settings", ())),
            allow_native=value("allow_native", True),
            engines=self._engines(value("engines", {})),
            index=value("index", True),
            python=value("python"),
            directory=value("directory", DEFAULT_DIRECTORY),
            master=self._master(settings.get("master")),
            tunnel=value("tunnel", False),
            launcher=value("launcher", "ssh"),
            settings=texts("settings"),
        )

    def _engines(self, given: Mapping[str, Located[str]]) -> tuple[EngineLabel, ...]:
        found = []
        for label, place in given.items():
            try:
                found.append(parse_engine_label(f"{label}={place.value}"))
            except InvalidValue as error:
                self._findings.add(place.place, str(error))
        return tuple(found)

    def _host_settings(self, given: Iterable[Located[str]]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for name in given:
            try:
                found[setting_name(name.value)] = None
            except ValueError as error:
                self._findings.add(name.place, str(error))
        return tuple(found)

    def _master(self, given: Located[Any] | None) -> str | None:
        if given is None:
            return None
        try:
            return host_name(given.value)
        except InvalidValue as error:
            self._findings.add(given.place, str(error))
            return None

    def _expand(self, text: str, place: SourceLocation) -> list[str]:
        try:
            return expand(text)
        except ValueError as error:
            self._findings.add(place, str(error))
            return []

    def _settings(self, own: Mapping[str, Located[Any]]) -> dict[str, Located[Any]]:
        """Return a host's settings: its own, then those of its groups (the last one first), then the defaults."""
        layers = [self._defaults]
        for group in own["groups"].value if "groups" in own and own["groups"].value is not INVALID else ():
            if group.value not in self._groups:
                hint = did_you_mean(group.value, self._groups) or "; define it under 'groups:'"
                self._findings.add(group.place, f"no group '{group.value}'{hint}")
            elif self._groups[group.value].value is not INVALID:
                layers.append(self._groups[group.value].value)
        settings: dict[str, Located[Any]] = {}
        for layer in (*layers, own):
            for key, given in layer.items():
                if given.value is INVALID:
                    continue
                if key in MERGED and key in settings:
                    settings[key] = Located({**settings[key].value, **given.value}, given.place)
                else:
                    settings[key] = given
        return settings

    def _with_jump(
        self, host: FleetHost, jump: Located[Any] | None, made: Mapping[str, tuple[FleetHost, Located[Any] | None]]
    ) -> FleetHost:
        login = self._route(host, jump, made, (host.name,))
        return replace(host, login=login)

    def _route(
        self,
        host: FleetHost,
        jump: Located[Any] | None,
        made: Mapping[str, tuple[FleetHost, Located[Any] | None]],
        passed: tuple[str, ...],
    ) -> Login:
        """Return how a host is reached, with all its jump hosts."""
        own = host.login
        # A group's jump host may belong to the group itself: it is reached directly.
        if jump is None or jump.value == host.name:
            return own
        if jump.value in passed:
            self._findings.add(jump.place, f"jump hosts form a loop: {' -> '.join((*passed, jump.value))}")
            return own
        if jump.value in made:
            before, further = made[jump.value]
            return replace(own, jump=self._route(before, further, made, (*passed, jump.value)))
        match = _JUMP.fullmatch(jump.value)
        if match is None or not 0 < int(match["port"] or SSH_PORT) <= 65535:  # noqa: PLR2004  the largest port
            self._findings.add(
                jump.place,
                f"{jump.value!r}: expected a host of this inventory, or [user@]address[:port]"
                f"{did_you_mean(jump.value, made)}",
            )
            return own
        address = match["address"].strip("[]")
        port = int(match["port"]) if match["port"] else None
        return replace(own, jump=Login(address, port, match["user"] or own.user, own.keys))

    def _check_workers(self, hosts: Sequence[FleetHost]) -> None:
        owners: dict[str, FleetHost] = {}
        for host in hosts:
            for name in host.worker_names:
                if name in owners:
                    self._findings.add(
                        host.place,
                        f"worker '{name}' of host '{host.name}' already belongs to host '{owners[name].name}'",
                    )
                if not KEY_NAME_PATTERN.fullmatch(name):
                    self._findings.add(host.place, f"{name!r}: a worker name has at most 64 characters")
                owners[name] = host


def _valid_part(read: Any, key: str) -> dict[str, Any]:
    """Return a part that was read; empty if it is absent or invalid."""
    if not isinstance(read, Mapping) or key not in read or read[key].value is INVALID:
        return {}
    return dict(read[key].value)
