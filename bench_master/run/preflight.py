"""Whether a worker can take part: what its hello says of its host, held against the plan, and the preflight check.

A hello may be as old as its worker, so what the plan's containers need (images, networks, engines) is asked of the
worker before it is admitted; the hello waits here for the answer. What a worker does not report, it cannot do. Pure:
the question is sent by a callback, and the clock is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from bench_common.engine_traits import engine_kind, engine_traits
from bench_common.host_info import EngineInfo, HostInfo
from bench_common.job_rules import rules_of
from bench_common.messages import Hello
from bench_common.messages import Preflight as PreflightMessage
from bench_common.requirements import (
    ImageProgram,
    Requirement,
    engines_for_worker,
    ignored_settings,
    kinds_for_worker,
    local_services,
    requirements_for_worker,
    services_hosted_by,
    settings_for_worker,
    unsupported_features,
    untold_primary,
)
from bench_common.treatment import (
    CONTAINER_PATH,
    FOREIGN_ADVICE,
    ContainerSettings,
    Guest,
    Lifecycle,
    Treatment,
    outside_logging,
)
from bench_master.formatting import plural


class Compatibility(Struct, frozen=True):
    """Whether a worker can do what the plan asks of it."""

    reasons: tuple[str, ...] = ()
    """Why it cannot; empty where it can."""
    unusable: bool = False
    """Whether an engine cannot be used on its host."""
    remarks: tuple[str, ...] = ()
    """Settings that mean nothing to an engine of the plan, and are ignored there."""


def check_compatibility(
    treatments: Sequence[Treatment],
    *,
    environment: str,
    slots: int,
    info: HostInfo,
    noop: bool,
    worker_id: str = "",
    places: Mapping[tuple[str, str], str] | None = None,
    primary: Sequence[str] = (),
) -> Compatibility:
    """Check a worker's slots and engines (`info` is from its hello) against the treatments of its environment.

    The services that it hosts for jobs of other workers are checked, too. `places` say where the scenario gives a
    host setting a value, and `primary` is the measure by which each treatment is compared.
    """
    reasons: dict[str, None] = {}
    remarks: dict[str, None] = {}
    unusable = False
    engines = info.get("engines", {})
    for treatment in treatments:
        hosted = {} if noop else services_hosted_by(treatment, worker_id, environment)
        takes = treatment.environment in (None, environment)
        if not takes and not hosted:
            continue
        if takes and treatment.concurrency > slots:
            wanted, available = plural(treatment.concurrency, "job"), plural(slots, "slot")
            reasons[f"{wanted} in flight, but it has {available} (-c)"] = None
        if not noop and takes:
            reasons |= dict.fromkeys(_check_settings(treatment, info, places or {}))
        if noop or not treatment.job.uses_engine:
            continue
        status = engines.get(treatment.engine)
        kind = engine_kind(treatment.engine)
        if status is None:
            label = "" if kind == treatment.engine else f": start it with --engine {treatment.engine}={kind}:PLACE"
            reasons[f"it has no engine {treatment.engine!r}{label}"] = None
        elif (status.get("kind") or treatment.engine) != kind:
            reasons[f"its engine {treatment.engine!r} is a {status['kind']}, and a {kind} by --engine here"] = None
        elif not status.get("usable"):
            unusable = True
            advice = f"; {status['advice']}" if status.get("advice") else ""
            reasons[f"engine {treatment.engine} cannot be used: {status.get('reason')}{advice}"] = None
        else:
            here = _local_part(treatment, hosted, takes=takes)
            reasons |= dict.fromkeys(unsupported_features(status, here))
            reasons |= dict.fromkeys(_check_mounts(here, info, status))
            reasons |= dict.fromkeys(_check_logging(here, info, status))
            reasons |= dict.fromkeys(_check_native(here, info))
            reasons |= dict.fromkeys(_check_swap(here, info))
            reasons |= dict.fromkeys(_check_cold(here, info, status) if takes else ())
            if takes and treatment.index < len(primary):
                reasons |= dict.fromkeys(untold_primary(status, treatment, primary[treatment.index]))
            remarks |= dict.fromkeys(ignored_settings(status, here))
    return Compatibility(tuple(reasons), unusable, tuple(remarks))


def _local_part(treatment: Treatment, hosted: Mapping[str, ContainerSettings], *, takes: bool) -> Treatment:
    """Return the part of a treatment that runs on a worker's host: its jobs and the services here."""
    if not treatment.placement:
        return treatment
    if takes:
        return replace(treatment, services={**local_services(treatment), **hosted}, placement={})
    return replace(treatment, container=ContainerSettings(), services=dict(hosted), placement={}, swap="as-is")


def _check_logging(treatment: Treatment, info: HostInfo, status: EngineInfo) -> list[str]:
    if info.get("allow_foreign") or "log_driver" in status.get("inapplicable", ()):
        return []
    containers = (treatment.container, *treatment.services.values())
    return [f"{reason}: {FOREIGN_ADVICE}" for reason in filter(None, map(outside_logging, containers))]


def _check_mounts(treatment: Treatment, info: HostInfo, status: EngineInfo) -> list[str]:
    if info.get("allow_host_mounts"):
        return []
    containers = (treatment.container, *treatment.services.values())
    sources = [mount.source for one in containers for mount in one.storage if mount.kind == "host" and mount.source]
    if treatment.container.rootfs and "rootfs" not in status.get("inapplicable", ()):
        sources.append(treatment.container.rootfs)
    return [f"host directory {source} may not be mounted: start it with --allow-host-mounts" for source in sources]


def _check_native(treatment: Treatment, info: HostInfo) -> list[str]:
    if not engine_traits(treatment.engine).runs_on_host or info.get("allow_native"):
        return []
    return [f"engine {treatment.engine} may not run programs on its host: start it with --allow-native"]


def service_programs(treatments: Sequence[Treatment], environment: str, worker_id: str = "") -> list[Requirement]:
    """Return the programs of services that run on a worker's host itself, each once.

    In a container they come with the image. Optional treatments add none.
    """
    found: dict[Requirement, None] = {}
    for treatment in treatments:
        if treatment.optional or not engine_traits(treatment.engine).runs_on_host:
            continue
        here = {*services_hosted_by(treatment, worker_id, environment)}
        if treatment.environment in (None, environment):
            here |= {*local_services(treatment)}
        for service, program in rules_of(treatment).host_programs().items():
            if service in here and program:
                found[Requirement(treatment.engine, program=program)] = None
    return list(found)


def own_programs(treatment: Treatment) -> Iterator[str]:
    """Yield the programs of the commands that a treatment's user wrote; none that its jobs may make themselves."""
    job = treatment.job
    own = job.own if isinstance(job, Guest) else None
    makes_files = own is not None and bool(own.setup or own.prepare)
    commands = [treatment.container.command or (), own.command if own is not None else ()]
    for program in (command[0] for command in commands if command):
        # A value is filled in when the job runs.
        if "{" not in program and not ("/" in program and makes_files):
            yield program


def measured_programs(treatments: Iterable[Treatment], environment: str) -> list[Requirement]:
    """Return the programs that plain processes of a worker's host run as the measured commands, each once.

    An optional treatment has some, too: it may run.
    """
    treatments = list(treatments)
    compared = _beside_each_other(treatments)
    found: dict[Requirement, None] = {}
    for treatment in treatments:
        if treatment.environment not in (None, environment) or not engine_traits(treatment.engine).runs_on_host:
            continue
        in_container = treatment.plain_environment == "container"
        path = treatment.container.env.get("PATH") or (CONTAINER_PATH if in_container else None)
        rules, folder = rules_of(treatment), treatment.container.directory
        workloads = rules.host_programs().get("")
        operations = treatment.job.operations if isinstance(treatment.job, Lifecycle) else ()
        of_operations = [one.argv[0] for one in operations if one.argv and "{" not in one.argv[0]]
        for program in (*own_programs(treatment), *of_operations, *([workloads] if workloads else [])):
            is_relative = "/" in program and not program.startswith("/")
            if not is_relative or folder is not None:  # each job has a directory of its own
                begins = folder if is_relative else None
                need = Requirement(
                    treatment.engine, command=program, search_path=path, directory=begins, compared=compared
                )
                found[need] = None
    return list(found)


def started_programs(treatments: Iterable[Treatment], environment: str) -> list[Requirement]:
    """Return the programs of workloads and users' commands that containers of images begin with, each once.

    Not those that a job may make itself, or that are known only when it runs; optional treatments add none.
    """
    treatments = list(treatments)
    compared = _beside_each_other(treatments)
    found: dict[Requirement, None] = {}
    for treatment in treatments:
        container = treatment.container
        takes = treatment.environment in (None, environment) and treatment.job.uses_engine
        in_image = container.image is not None and container.rootfs is None and not treatment.fetches_image
        if treatment.optional or not takes or not in_image or engine_traits(treatment.engine).runs_on_host:
            continue
        covered = (*(mount.target for mount in container.storage), *container.files)
        is_known = isinstance(treatment.job, Guest) and treatment.job.own is None
        directory = container.directory or ("" if is_known else None)
        for program in _first_programs(treatment):
            wanted = ImageProgram(program, container.env.get("PATH"), directory, covered)
            found[Requirement(treatment.engine, container.image, starts=wanted, compared=compared)] = None
    return list(found)


def _beside_each_other(treatments: Iterable[Treatment]) -> bool:
    """Return whether plain processes and containers are compared."""
    return len({engine_traits(one.engine).runs_on_host for one in treatments if one.job.uses_engine}) > 1


def _first_programs(treatment: Treatment) -> list[str]:
    job = treatment.job
    commands: list[tuple[str, ...]]
    if isinstance(job, Guest):
        own = job.own
        if own is None:
            commands = [(rules_of(treatment).host_programs().get("", ""),)]
        else:
            commands = [] if own.setup or own.prepare else [own.command]
    else:
        makers = [one for one in job.engine_operations if one.kind in _MAKERS]
        commands = [one.argv or treatment.container.command or () for one in makers]
    return [command[0] for command in commands if any(command[:1]) and "{" not in command[0]]


_MAKERS: Final = frozenset({"create", "run"})
"""The operations that make a container; they may give it another command than its own."""


def _check_swap(treatment: Treatment, info: HostInfo) -> list[str]:
    none = info.get("fingerprint", {}).get("swap") == 0
    if treatment.swap == "as-is" or none or info.get("allow_swapoff"):
        return []
    return ["swap may not be switched off: start it with --allow-swapoff, or leave swap on with `swap: as-is`"]


def _check_cold(treatment: Treatment, info: HostInfo, status: EngineInfo) -> list[str]:
    if treatment.cold == "none":
        return []
    found = []
    if not info.get("allow_cold"):
        found.append(f"`cold: {treatment.cold}` is not allowed on its host: start it with --allow-cold")
    elif treatment.drops_page_cache and info.get("page_cache"):
        found.append(f"`cold: {treatment.cold}`: {info['page_cache']}")
    if treatment.drops_image and "pull" not in status.get("operations", ()):
        found.append(f"engine {treatment.engine} fetches no image, so `cold: {treatment.cold}` cannot remove it")
    return found


def _check_settings(treatment: Treatment, info: HostInfo, places: Mapping[tuple[str, str], str]) -> list[str]:
    allowed = info.get("allow_host_settings", ())
    return [
        f"{setting_place(places, name, value)}host setting {name} may not be changed: start it with "
        f"--allow-host-settings {name}"
        for name, value in treatment.host.items()
        if name not in allowed
    ]


def setting_place(places: Mapping[tuple[str, str], str], name: str, value: str) -> str:
    """Return where the scenario gives a host setting a value (empty: where first any), to begin a message with."""
    place = places.get((name, value)) or next((place for (one, _), place in places.items() if one == name), "")
    return f"{place}: " if place else ""


PREFLIGHT_TIMEOUT_S: Final = 300.0
"""How long a worker may take to answer, in seconds."""
HELLO_TIMEOUT_S: Final = 20.0
"""A worker that waits repeats its hello twice a second; one that is silent for so long has left."""


class _PendingHello(Struct):
    """The latest hello of a worker that was asked and has not answered."""

    sent_s: float
    """When the question was sent."""
    last_heard_s: float
    identity: str | None
    """The name of the connection's key; None without keys."""
    hello: Hello
    received_ns: int


class PreflightCheck:
    """Asks workers for what the plan needs, and keeps their hellos until they answer.

    `send(peer, message)` sends the question, `clock()` gives seconds.
    """

    def __init__(
        self,
        treatments: Sequence[Treatment],
        send: Callable[[bytes, PreflightMessage], None],
        clock: Callable[[], float],
    ) -> None:
        self._treatments = treatments
        self._send = send
        self._clock = clock
        self._waiting: dict[bytes, _PendingHello] = {}
        self._cleared: set[bytes] = set()

    def admits(
        self, peer: bytes, identity: str | None, hello: Hello, received_ns: int, *, doubtful: bool = False
    ) -> bool:
        """Return whether this worker has answered, or need not: nothing is required, and its hello is not `doubtful`.

        A worker that was not asked yet is asked now, and its hello is kept.
        """
        who = (self._treatments, hello.environment, identity or hello.worker_id)
        needs = [*requirements_for_worker(*who), *service_programs(*who)]
        needs += measured_programs(self._treatments, hello.environment)
        needs += started_programs(self._treatments, hello.environment)
        kinds = kinds_for_worker(self._treatments, hello.environment)
        engines = engines_for_worker(*who)
        settings = settings_for_worker(self._treatments, hello.environment)
        if peer in self._cleared or not (needs or kinds or settings or (doubtful and engines)):
            return True
        now = self._clock()
        self._forget(now)
        kept = self._waiting.get(peer)
        if kept is None:
            question = PreflightMessage(epoch=0, requirements=needs, engines=engines, kinds=kinds, settings=settings)
            self._send(peer, question)
        asked_s = now if kept is None else kept.sent_s
        self._waiting[peer] = _PendingHello(asked_s, now, identity, hello, received_ns)
        return False

    def answered(
        self, peer: bytes, identity: str | None, engines: Mapping[str, EngineInfo]
    ) -> tuple[Hello, int] | None:
        """Note an answer; return the hello that waited for it, with these engines in it, and when that came (ns).

        None where this worker was not asked.
        """
        kept = self._waiting.get(peer)
        if kept is None or kept.identity != identity:
            return None
        del self._waiting[peer]
        self._cleared.add(peer)
        kept.hello.info.get("engines", {}).update(engines)
        return kept.hello, kept.received_ns

    def _forget(self, now: float) -> None:
        """Drop hellos whose connection has been gone for longer than any answer takes."""
        gone = [peer for peer, kept in self._waiting.items() if now - kept.last_heard_s > PREFLIGHT_TIMEOUT_S]
        for peer in gone:
            del self._waiting[peer]

    @property
    def examined(self) -> frozenset[str]:
        """The ids of the workers that were asked and have not answered."""
        return frozenset(kept.identity or kept.hello.worker_id for kept in self._waiting.values())

    @property
    def pending(self) -> bool:
        """Whether an answer may still come."""
        now = self._clock()
        return any(
            now - kept.sent_s < PREFLIGHT_TIMEOUT_S and now - kept.last_heard_s < HELLO_TIMEOUT_S
            for kept in self._waiting.values()
        )
