"""What of a bucketbench definition means something else here, or nothing: a sentence for each, with its place.

Nothing is dropped in silence. What bucketbench itself overlooks is said too, since its author may not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench_master.bucketbench.containers import runs_bundle
from bench_master.bucketbench.schema import Driver, told
from bench_master.bucketbench.steps import commands_left_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench_master.scenario.diagnostics import Given


def losses(
    definition: Mapping[str, Given[Any]],
    drivers: Sequence[Given[Mapping[str, Given[Any]]]],
    *,
    overhead: bool,
    grace: str,
) -> Iterator[str]:
    """Yield what is not carried over of a definition that is right, and of those of its drivers that are to run.

    `overhead` says whether what the engines cost is measured, `grace` how long `stop` waits.
    """
    commands: Sequence[Given[str]] = definition["commands"].value
    kinds: list[Driver] = [driver.value["type"].value for driver in drivers]
    yield from _of_containers(definition, kinds)
    groups: dict[str, str] = {}
    asked = any(command.value == "stats" for command in commands)
    for driver, kind in zip(drivers, kinds, strict=True):
        yield from _of_driver(kind, driver.value)
        yield from _of_stats(kind, driver.value, asked=asked)
        if "cgroupPath" in driver.value:
            yield from _of_group(kind, driver.value["cgroupPath"], groups, overhead=overhead)
    yield from _of_stop(commands, kinds, grace)
    yield from commands_left_out(commands, kinds)


def _of_containers(definition: Mapping[str, Given[Any]], kinds: Sequence[Driver]) -> Iterator[str]:
    detached, command = definition.get("detached"), definition.get("command")
    if command is not None and set(command.value) & set("'\""):
        yield _said(command, "'command' is split at its blanks, as bucketbench does: quotes are parts of the words")
    # Where bucketbench runs a bundle, and here it is the image.
    unbundled = ", ".join(
        dict.fromkeys(kind.name for kind in kinds if kind.bundle and not runs_bundle(kind, definition))
    )
    if unbundled and command is not None:
        yield _said(command, f"'command' is what runs under {unbundled} too; bucketbench takes it from 'config.json'")
    if "rootfs" in definition and not any(kind.bundle for kind in kinds):
        yield _said(definition["rootfs"], "'rootfs' means nothing to these drivers, in bucketbench too")
    elif "rootfs" in definition and unbundled:
        text = f"'rootfs' is not carried over under {unbundled}: the root file system is made of 'image'"
        yield _said(definition["rootfs"], text)
    if detached is not None and not detached.value:
        yield _said(detached, "'detached: false' has no effect: containers are always detached, in bucketbench too")


def _said(given: Given[Any], text: str) -> str:
    return f"{told(given.place)}: {text}"


def _of_stop(commands: Sequence[Given[str]], kinds: Sequence[Driver], grace: str) -> Iterator[str]:
    """Yield that stop is one thing here: bucketbench's three cannot be compared with each other."""
    stop = next((command for command in commands if command.value == "stop"), None)
    others: dict[str, dict[str, None]] = {}
    for kind in kinds:
        if kind.stop != grace:
            others.setdefault(kind.stop, {})[kind.name] = None
    if stop is not None and others:
        there = "; ".join(f"{meaning} under {', '.join(names)}" for meaning, names in others.items())
        text = f"'stop' is SIGTERM, and SIGKILL after {grace} (see --stop-grace), under every driver"
        yield _said(stop, f"{text}; in bucketbench {there}")


def _of_driver(kind: Driver, driver: Mapping[str, Given[Any]]) -> Iterator[str]:
    name = kind.name
    if name == "Ctr":
        yield _said(driver["type"], "Ctr, which is containerd before 1.0, runs as engine containerd, from the image")
    if name == "CRI":
        text = "CRI runs 'image' and 'command'; bucketbench takes them from contrib/container_config.json"
        yield _said(driver["type"], text)
    if "clientpath" in driver and driver["clientpath"].value != kind.client:
        yield _said(driver["clientpath"], _about_client(kind))
    if "logDriver" in driver and not kind.logs:
        yield _said(driver["logDriver"], f"'logDriver' means nothing to {name}, in bucketbench too")
    if "logOpts" in driver and not (kind.logs and "logDriver" in driver):
        why = "without 'logDriver'" if kind.logs else f"to {name}"
        yield _said(driver["logOpts"], f"'logOpts' means nothing {why}, in bucketbench too")


def _of_stats(kind: Driver, driver: Mapping[str, Given[Any]], *, asked: bool) -> Iterator[str]:
    stream, interval = driver.get("streamStats"), driver.get("statsIntervalSec")
    streams = stream is not None and stream.value
    if stream is not None and streams and not (asked and kind.streams):
        why = f"to {kind.name}" if asked else "without the command 'stats'"
        yield _said(stream, f"'streamStats' means nothing {why}, in bucketbench too")
    elif stream is not None and streams and kind.asks:
        text = (
            f"'streamStats' of {kind.name} asks anew each time; bucketbench keeps one `docker stats` for all readings"
        )
        yield _said(stream, text)
    if interval is not None and not (asked and kind.polls and streams):
        why = "without 'streamStats' and the command 'stats'" if kind.polls else f"to {kind.name}"
        yield _said(interval, f"'statsIntervalSec' means nothing {why}, in bucketbench too")


def _of_group(kind: Driver, group: Given[str], groups: dict[str, str], *, overhead: bool) -> Iterator[str]:
    """Yield what becomes of a cgroup path; `groups` are those of the drivers before, by engine."""
    if not overhead:
        yield _said(group, f"'cgroupPath' of {kind.name} has an effect with --overhead alone, in bucketbench too")
    elif groups.setdefault(kind.engine, group.value) != group.value:
        yield _said(group, f"'cgroupPath' of {kind.name} is left out: {groups[kind.engine]} is that of its engine")


def _about_client(kind: Driver) -> str:
    if kind.client == "nothing":
        return f"'clientpath' means nothing to {kind.name}, in bucketbench too"
    own = "the socket of its host" if kind.client == "socket" else f"the '{kind.client}' on its PATH"
    return (
        f"'clientpath' of {kind.name} is not carried over, as no scenario tells a worker what to run: "
        f"it uses {own}, see list-engines"
    )
