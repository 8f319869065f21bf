"""How the container of each driver is made: from the image, or from the bundle that an OCI runtime is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from bench_master.bucketbench.schema import Driver
from bench_master.scenario.tree import Entries, Items, Leaf, Node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_master.scenario.diagnostics import Given

Values: TypeAlias = dict[str, Node]


def runs_bundle(kind: Driver, definition: Mapping[str, Given[Any]]) -> bool:
    """Return whether a driver runs the definition's bundle, whose ``config.json`` says the command."""
    return kind.takes_rootfs and "rootfs" in definition


class Containers:
    """The containers of one definition. What two of them share is the same node, so that it can be told once."""

    def __init__(self, definition: Mapping[str, Given[Any]]) -> None:
        self._definition = definition
        self._image: Values = {"image": text(definition["image"])}
        self._rootfs: Values = {"rootfs": text(definition["rootfs"])} if "rootfs" in definition else {}
        command: Given[str] | None = definition.get("command")
        if command is not None and command.value.split():
            words: list[Node] = [Leaf(command.place, word, plain=False) for word in command.value.split()]
            self._image["command"] = Items(command.place, words)

    def of(self, driver: Mapping[str, Given[Any]]) -> Values:
        """Return the container of one driver's jobs."""
        kind: Driver = driver["type"].value
        if runs_bundle(kind, self._definition):
            return dict(self._rootfs)
        return self._image | (_logs(driver) if kind.logs else {})


def shared(containers: Sequence[Values]) -> Values:
    """Return what all of the containers have in common."""
    first, *others = containers
    return {key: node for key, node in first.items() if all(other.get(key) is node for other in others)}


def text(given: Given[str]) -> Leaf:
    """Return text as a node at its place."""
    return Leaf(given.place, given.value, plain=False)


def _logs(driver: Mapping[str, Given[Any]]) -> Values:
    if "logDriver" not in driver:
        return {}
    logs: Values = {"log_driver": text(driver["logDriver"])}
    options = driver.get("logOpts")
    if options is not None and options.value:
        node = Entries(options.place)
        for name, value in options.value.items():
            node.put(name, text(value), value.place)
        logs["log_options"] = node
    return logs
