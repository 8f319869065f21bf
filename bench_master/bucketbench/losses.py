"""What of a bucketbench definition means something else here, or nothing: a sentence for each, with its place.

Nothing is dropped in silence. What bucketbench itself overlooks is said too, since its author may not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench_master.bucketbench.schema import GRACE, Driver, told

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench_master.scenario.findings import Given


def losses(definition: Mapping[str, Given[Any]], drivers: Sequence[Given[Mapping[str, Given[Any]]]]) -> Iterator[str]:
    """Yield what is not carried over, in the order of the file; the definition and its drivers are right."""
    detached, command = definition.get("detached"), definition.get("command")
    if command is not None and set(command.value) & set("'\""):
        yield _said(command, "'command' is split at its blanks, as bucketbench does: quotes are parts of the words")
    if detached is not None and not detached.value:
        yield _said(detached, "'detached: false' has no effect: containers are always detached, in bucketbench too")
    kinds: list[Driver] = [driver.value["type"].value for driver in drivers]
    yield from _of_stop(definition["commands"], kinds)
    bundles = ", ".join(dict.fromkeys(kind.name for kind in kinds if kind.bundle))
    if "rootfs" in definition:
        yield _said(definition["rootfs"], _about_rootfs(bundles))
    if bundles and command is not None:
        yield _said(command, f"'command' is what runs under {bundles} too; bucketbench takes it from 'config.json'")
    for driver, kind in zip(drivers, kinds, strict=True):
        yield from _of_driver(kind, driver.value)


def _said(given: Given[Any], text: str) -> str:
    return f"{told(given.place)}: {text}"


def _of_stop(commands: Given[Any], kinds: Sequence[Driver]) -> Iterator[str]:
    """Yield that stop is one thing here: bucketbench's three cannot be compared with each other."""
    stop = next((command for command in commands.value if command.value == "stop"), None)
    other = dict.fromkeys(f"{kind.stop} under {kind.name}" for kind in kinds if kind.stop != GRACE)
    if stop is not None and other:
        text = f"'stop' is SIGTERM, and SIGKILL after {GRACE}, under every driver; in bucketbench {', '.join(other)}"
        yield _said(stop, text)


def _about_rootfs(bundles: str) -> str:
    if not bundles:
        return "'rootfs' means nothing to these drivers, in bucketbench too"
    return f"'rootfs' is not carried over: under {bundles} the root file system is made of 'image'"


def _of_driver(kind: Driver, driver: Mapping[str, Given[Any]]) -> Iterator[str]:
    name = kind.name
    if name == "Ctr":
        yield _said(driver["type"], "Ctr, which is containerd before 1.0, runs as engine containerd, from the image")
    if name == "CRI":
        text = "CRI runs 'image' and 'command'; bucketbench takes them from contrib/container_config.json"
        yield _said(driver["type"], text)
    if "clientpath" in driver:
        yield _said(driver["clientpath"], _about_client(kind))
    if "logDriver" in driver and not kind.logs:
        yield _said(driver["logDriver"], f"'logDriver' means nothing to {name}, in bucketbench too")
    if "logOpts" in driver and not (kind.logs and "logDriver" in driver):
        why = "without 'logDriver'" if kind.logs else f"to {name}"
        yield _said(driver["logOpts"], f"'logOpts' means nothing {why}, in bucketbench too")
    yield from _of_stats(kind, driver)
    if "cgroupPath" in driver:
        yield _said(driver["cgroupPath"], f"'cgroupPath' of {name} is not carried over: the overhead is not measured")


def _of_stats(kind: Driver, driver: Mapping[str, Given[Any]]) -> Iterator[str]:
    stream, interval = driver.get("streamStats"), driver.get("statsIntervalSec")
    if stream is not None and stream.value:
        why = "is not carried over" if kind.streams else f"means nothing to {kind.name}, in bucketbench too"
        yield _said(stream, f"'streamStats' {why}")
    if interval is not None:
        why = "is not carried over" if kind.polls else f"means nothing to {kind.name}, in bucketbench too"
        yield _said(interval, f"'statsIntervalSec' {why}")


def _about_client(kind: Driver) -> str:
    if kind.client == "nothing":
        return f"'clientpath' means nothing to {kind.name}, in bucketbench too"
    return (
        f"'clientpath' of {kind.name} is not carried over: no scenario names a {kind.client}; "
        "the worker uses the one that its host has, see list-engines"
    )
