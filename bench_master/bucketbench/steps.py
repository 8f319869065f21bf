"""Which operations a definition's commands become under each driver, and which of them cannot be had there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench_master.bucketbench.schema import GRACE, Driver, told
from bench_master.scenario.tree import Entries, Items, Leaf, Node, Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench_master.scenario.diagnostics import Given

_POLL_S: Final = 1
"""How often a stream of statistics comes where the definition does not say, in seconds."""


def steps_of(commands: Given[tuple[Given[str], ...]], driver: Mapping[str, Given[Any]], grace: str = GRACE) -> Items:
    """Return the operations of one driver's job, each at the place of its command; `grace` is that of `stop`."""
    kind: Driver = driver["type"].value
    lost = {id(command) for command, _ in _left_out(commands.value, kind)}
    kept = [command for command in commands.value if id(command) not in lost]
    return Items(commands.place, [_step(command, kind, driver, grace) for command in kept])


def _step(command: Given[str], kind: Driver, driver: Mapping[str, Given[Any]], grace: str) -> Node:
    place = command.place
    if command.value == "stop":
        return _with_option(place, command.value, "grace", grace)
    stream, interval = driver.get("streamStats"), driver.get("statsIntervalSec")
    if command.value == "stats" and stream is not None and stream.value:
        seconds = interval.value if kind.polls and interval is not None else 0
        return _with_option(place, command.value, "interval", f"{seconds or _POLL_S}s")
    return Leaf(place, command.value)


def _with_option(place: Place, kind: str, name: str, value: str) -> Entries:
    option, step = Entries(place), Entries(place)
    option.put(name, Leaf(place, value), place)
    step.put(kind, option, place)
    return step


def _left_out(commands: Sequence[Given[str]], kind: Driver) -> Iterator[tuple[Given[str], str]]:
    """Yield the commands that have no operation under a driver, and why."""
    ended = False
    for command in commands:
        if command.value == "stats":
            if not kind.streams:
                yield command, "bucketbench cannot do it there either, and counts errors"
            elif ended:
                yield command, "the container has ended by then, so there is nothing to ask"
        elif command.value in {"pause", "unpause"} and kind.name == "CRI":
            yield command, "a CRI runtime has no such call; bucketbench does nothing, and reports a success"
        ended = ended or command.value in {"wait", "stop"}


def commands_left_out(commands: Sequence[Given[str]], kinds: Sequence[Driver]) -> Iterator[str]:
    """Yield a note for each command that is left out, and each reason, with the drivers that it holds for."""
    found: dict[tuple[int, str], dict[str, None]] = {}
    for kind in kinds:
        for command, reason in _left_out(commands, kind):
            found.setdefault((id(command), reason), {})[kind.name] = None
    for command in commands:
        for (which, reason), names in found.items():
            if which == id(command):
                where = f"{told(command.place)}: '{command.value}'"
                yield f"{where} is left out under {', '.join(names)}: {reason}"
