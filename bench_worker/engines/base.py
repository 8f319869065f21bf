"""What an engine is: methods on one container, each stamped where it happens.

An engine is a class in one module, registered under the entry-point group ``weighbridge.engines``. It must define
15 methods and may define 19 more; `Engine` lists them by group. Slots call them from greenlets: a method blocks its
greenlet, never the loop, and honours `timeout_s`. An operation returns an `OperationResult` whose stamps were taken
next to the socket or the process, or raises `OperationFailed` with the same stamps, so that a failure's time is
kept apart.
"""

from __future__ import annotations

import abc
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from time import monotonic, monotonic_ns, sleep
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeAlias

from msgspec import Struct, field

from bench_common.defaults import TIMEOUT_S
from bench_common.errors import EngineUnavailable, WeighbridgeError
from bench_common.layout import NO_LAYOUT
from bench_worker.engines.output import Capture
from bench_worker.owner import own_label

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench_common.requirements import ImageProgram
    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.cost_group import CostGroup
    from bench_worker.images.build import ImageStore


LABEL = "weighbridge"
"""Prefix of every label: ``weighbridge.run``, ``.worker``, ``.ticket`` and ``.owner``."""
RUN_LABEL = f"{LABEL}.run"
WORKER_LABEL = f"{LABEL}.worker"
TICKET_LABEL = f"{LABEL}.ticket"
OWNER_LABEL = f"{LABEL}.owner"
"""Which process works for it; see `bench_worker.owner`."""

PROBE_S: Final = 20.0
"""How long a probe waits for each answer, in seconds: on a busy machine a program takes some to start."""

PRINTED_LIMIT_BYTES = 1 << 20
"""How much of the output of a running command is read, in bytes."""


class EngineStatus(Struct, frozen=True):
    """Whether an engine can be used on this host, and what it can do."""

    name: str
    usable: bool
    """Whether it can be used."""
    version: str = ""
    endpoint: str = ""
    """The socket, program or directory that it works with."""
    reason: str = ""
    """Why it cannot be used."""
    advice: str = ""
    """What to install or start, so that it can be used."""
    operations: tuple[str, ...] = ()
    """The operations that it can do."""
    settings: tuple[str, ...] = ()
    """The settings that it enforces; any other one is refused, but for those that are inapplicable."""
    inapplicable: tuple[str, ...] = ()
    """The settings that have no meaning for it and are left out: a plain process has no image."""
    details: Mapping[str, str] = field(default_factory=dict)
    """More facts, such as ``setting.NAME``: why it cannot enforce a setting."""
    kind: str = ""
    """The engine that it is, where `name` is a label."""
    runs_services: bool = False
    """Whether it knows the address of a container, so that it can run services."""


def unavailable_advice(reason: str, otherwise: str) -> str:
    """Return what to do about an engine that does not answer for that reason: it may run, and refuse this user."""
    if "permission denied" in reason.lower():
        return "run as root, or as a user who may use its socket (`ls -l` shows to which group it belongs)"
    return otherwise


class EngineOptions(Struct, frozen=True):
    """What an engine is opened with."""

    run_id: str
    """The run that it works for; empty where it is only queried."""
    worker_id: str
    """The worker that it works for."""
    slots: int
    """How many operations may be in progress at once."""
    timeout_s: float = TIMEOUT_S
    """The deadline of an operation that names none."""
    allow_host_mounts: bool = False
    """Whether host directories may be mounted."""
    allow_foreign: bool = False
    """Whether volumes and networks that others made may be used, and log drivers that write elsewhere."""


CostMeter: TypeAlias = Callable[[], Mapping[str, float]]
"""Tells what a job has cost, by the names of `bench_common.cost`."""


class StatsStreamHandle(Protocol):
    """A stream of a container's statistics that goes on."""

    def end(self) -> tuple[int, OperationFailed | None]:
        """End it; return how many readings there were, and why it broke off early, if it did."""


def container_prefix(run_id: str) -> str:
    """Return what the names of a run's containers begin with."""
    return f"wb-{run_id}-"


class Container:
    """One container (or what stands for it) of one job.

    There is one for every job, and most of them never have what is rare: that is made when it is first asked for.
    """

    handle: object = None
    pulled_image: str | None = None
    """What `pull` has fetched for it, as its engine names it, where that is not the name in its settings."""
    killed: bool = False
    """Whether it was stopped or killed since its last start: its exit by a signal is then expected."""
    """How many times it was saved, where the engine has to tell one from the next."""
    live_output: Capture | None = None
    """What the `exec` under way has printed on stdout so far, where the engine hears it."""
    counts_cost: bool = False
    """Whether its job tells its cost: set before its first operation."""
    cost: Mapping[str, float] | None = None
    """What its job cost, or what it took while it was held, by the names of `bench_common.cost`, once that is
    known."""
    cost_group: CostGroup | None = None
    """The control group around it that keeps its counters, where its engine needs one for that."""
    memory_directory: Path | None = None
    """The directory of the cgroup that limits its memory, once it was asked for and is on this host."""

    publish: tuple[str, int] | None = None
    """An address of the host, and the port of its own that is reached there, at a port that the engine picks."""
    shares: tuple[str, ...] = ()
    """The names of containers whose volumes it has, too, at the same paths."""

    def __init__(self, name: str, ticket: int, settings: ContainerSettings) -> None:
        self.name = name
        self.ticket = ticket
        self.settings = settings

    @cached_property
    def labels(self) -> dict[str, str]:
        """What tells whose it is."""
        return {}

    @cached_property
    def images(self) -> list[str]:
        """Images that `commit` made, to be removed with the container."""
        return []

    @cached_property
    def attached_resources(self) -> list[str]:
        """What else was made for it and is removed with it, as its engine names it: data containers, directories."""
        return []

    @cached_property
    def watches(self) -> list[StatsStreamHandle]:
        """Streams of its statistics that go on until its job ends."""
        return []


class OperationResult(Struct, gc=False):
    """An operation that succeeded; times are nanoseconds of CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int
    """The latest instant at which it can have ended."""
    exit_code: int | None = None
    """The exit code of `exec` or `wait`."""
    stdout: bytes = b""
    """The output of `exec` or `logs`."""
    stderr: bytes = b""
    """The error output of `exec` or `logs`."""
    truncated: bool = False
    """Whether the output was longer than what is kept."""
    oom_killed: bool = False
    """Whether the kernel killed a process of it for lack of memory."""
    end_uncertainty_ns: int = 0
    """It ended at most this long before `end_ns`."""
    cpu_s: tuple[float, float] | None = None
    """CPU time of the command of `exec` or `wait`, in user mode and in the kernel; None where nobody counted it."""


class OperationFailed(WeighbridgeError):
    """An operation failed: `kind` is a short stable word to group by, the message the engine's own words.

    Kinds: ``timeout``, ``not-found``, ``conflict``, ``image-missing``, ``not-executable``, ``command-not-found``,
    ``exit-code``, ``oom-killed``, ``killed``, ``unsupported``, ``refused``, ``unreachable``, ``disk-full``,
    ``engine``.
    """

    def __init__(self, kind: str, message: str, *, start_ns: int, end_ns: int) -> None:
        super().__init__(message)
        self.kind = kind
        self.start_ns = start_ns
        self.end_ns = end_ns


class Leftover(Struct, frozen=True):
    """Something that a run left behind and that carries its label."""

    engine: str
    """The engine that found it."""
    what: str
    """Its kind: container, image, process ..."""
    identity: str
    """How the engine identifies it."""
    name: str
    run_id: str
    """The run that left it."""
    age_s: float | None = None
    """Its age; None where that is unknown."""
    owner: str = ""
    """The label that says which process works for it (`bench_worker.owner`); empty where it has none."""


class CompanionDaemon(Struct, frozen=True):
    """Another daemon that a root works with, called `name`.

    It is among the root's descendants, or else listens on the socket that `option` of the root's command line
    names, or else on `socket`.
    """

    name: str
    option: str
    socket: str


class DaemonProcesses(Struct, frozen=True):
    """Which processes of a host an engine costs beside the containers' own; empty for an engine that has no daemon.

    A root listens on one of `sockets`, or has its number in one of `pid_files`; where neither finds one, every
    process called like one of `roots` is one. Of the descendants of roots and companions those called like one
    of `names` belong to it, and not what runs in containers. `shims` are helpers that are nobody's children:
    one belongs to it if the socket that it was told (``-address``) is that of a process that does, or if it was
    told none. Names are those of ``/proc/PID/comm``, 15 letters at most.

    `sandboxes` are what stands between a container's processes and the host's kernel, by the first word of its
    command line (its name is often but ``exe``): one belongs to it if its parent is a shim that does, or if it was
    told (``--root``) the directory `state`. Its own CPU time counts, and not that of the processes below it.
    """

    names: frozenset[str] = frozenset()
    sockets: tuple[str, ...] = ()
    pid_files: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    companion_daemons: tuple[CompanionDaemon, ...] = ()
    shims: frozenset[str] = frozenset()
    sandboxes: frozenset[str] = frozenset()
    state: str = ""

    def __bool__(self) -> bool:
        return bool(self.names or self.shims or self.sandboxes)


class Engine(abc.ABC):
    """Runs containers. One instance serves one worker; `open` before the first operation, `close` after the last.

    Every engine defines `probe`, `open`, `close`, the operations `create`, `start`, `exec`, `wait`, `pause`,
    `unpause`, `stop`, `kill`, `logs`, `remove`, and for clean-up `leftovers` and `discard`. The others have a
    default: the operations `run`, `pull`, `commit`, `stats`; for services `address`,
    `published_port`, `shared_path`; before a run `missing`, `absent_program`, `image_digest`, `prepare`; and
    `answers`, `daemon_processes`, `watch`, `read_output`, `committed_bytes`, `cgroup`, `cost_meter`.
    """

    name: ClassVar[str]
    operations: ClassVar[frozenset[str]]
    settings: ClassVar[frozenset[str]]
    inapplicable: ClassVar[frozenset[str]] = frozenset()
    unsupported_settings: ClassVar[Mapping[str, str]] = {}
    """Why it enforces none of these on any host."""
    unsupported_operations: ClassVar[Mapping[str, str]] = {}
    """Why it can do none of these on any host."""
    kind: ClassVar[str] = ""
    """The registered name of the engine, where `name` is a label of it; else empty."""
    place: ClassVar[str] = ""
    """Under a label, the program or the address that the worker's owner gave with it; empty: where it usually is."""
    store: ClassVar[str] = ""
    """The engine whose containers it finds (empty: its own).

    Engines of one store list the same leftovers, which count once.
    """

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self.layout = NO_LAYOUT
        """The layout of plain processes in the present trial, where the engine runs any."""

    @classmethod
    @abc.abstractmethod
    def probe(cls) -> EngineStatus:
        """Say whether the engine can be used on this machine. Never raises; waits `PROBE_S` for an answer."""

    @classmethod
    def status(
        cls,
        endpoint: str,
        *,
        version: str = "",
        reason: str = "",
        advice: str = "",
        unenforced: Mapping[str, str] | None = None,
        details: Mapping[str, str] | None = None,
    ) -> EngineStatus:
        """Return a status for `probe`: what the class says that the engine can do, less what it cannot on this host.

        It is usable if there is no `reason` why not. `unenforced` says why this host does not enforce a setting.
        """
        limits = {setting: why for setting, why in (unenforced or {}).items() if setting in cls.settings}
        return EngineStatus(
            name=cls.name,
            usable=not reason,
            version=version,
            endpoint=endpoint,
            reason=reason,
            advice=advice,
            operations=tuple(sorted(cls.operations - cls.unsupported_operations.keys())),
            settings=tuple(sorted(cls.settings - limits.keys())),
            inapplicable=tuple(sorted(cls.inapplicable)),
            details={
                **(details or {}),
                **{f"operation.{operation}": why for operation, why in cls.unsupported_operations.items()},
                **{f"setting.{setting}": why for setting, why in {**cls.unsupported_settings, **limits}.items()},
            },
        )

    @classmethod
    def program_of(cls, status: EngineStatus) -> str:
        """Return the path of the program that `probe` has found, whose digest is recorded; empty: there is none."""
        del status
        return ""

    @classmethod
    def daemon_processes(cls) -> DaemonProcesses | None:
        """Return which processes are the engine's own on this host; None where it is unknown."""
        return None

    @abc.abstractmethod
    def open(self) -> None:
        """Connect; raise `EngineUnavailable` with the reason and what to do."""

    @abc.abstractmethod
    def close(self) -> None:
        """Disconnect. Containers are not touched."""

    def prepare_pulls(self) -> None:  # noqa: B027  most engines need nothing
        """Load what `pull` needs: jobs that have it are to come."""

    @classmethod
    def image_store(cls) -> ImageStore | None:
        """Connect to the store in which this engine builds images from Dockerfiles; None where it builds none.

        Raises `EngineUnavailable` where the engine does not answer.
        """
        return None

    def missing(self, settings: ContainerSettings) -> list[str]:
        """Say what containers with these settings would lack on this host: an image, a network, a log driver ...

        Asked before a run begins, and never while anything is measured, so an engine may also fetch what another
        store of this host has. One reason each, with what to do; empty where nothing is known to be missing. Raises
        `InfrastructureError` when the engine cannot say.
        """
        del settings
        return []

    def absent_program(self, settings: ContainerSettings, wanted: ImageProgram) -> str:
        """Say that the image of these settings has no such program; empty where it has, or nobody can know cheaply.

        Asked after `missing` found the image, and never while anything is measured. Raises `WeighbridgeError`.
        """
        del settings, wanted
        return ""

    def surroundings(self, settings: ContainerSettings, wanted: ImageProgram | None) -> Mapping[str, str]:
        """Return what surrounds commands with these settings, as details: see `bench_worker.engines.surroundings`.

        Asked as `absent_program` is, where plain processes are compared with containers; empty where nobody knows.
        """
        del settings, wanted
        return {}

    def forbidden(self, settings: ContainerSettings) -> list[str]:
        """Say what of others containers with these settings would use without consent, one reason each.

        Asked with `missing`. Raises `InfrastructureError` when the engine cannot say.
        """
        del settings
        return []

    def image_digest(self, settings: ContainerSettings) -> str:
        """Return the digest (hexadecimal) that tells the image of these settings from others of its name.

        Asked after `missing` found it. Empty where the engine does not know; raises `WeighbridgeError`.
        """
        del settings
        return ""

    def prepare(self, settings: ContainerSettings) -> None:  # noqa: B027  most engines have nothing to do
        """Get ready what containers with these settings are made from, before the first of them is timed.

        What cannot be got is the failure of the first `create`, not of this.
        """

    def release(self) -> None:  # noqa: B027  most engines keep nothing ready
        """Remove what is kept ready for further containers; called after the last job, and perhaps again."""

    def pull(self, container: Container, *, fresh: bool, timeout_s: float) -> OperationResult:
        """Fetch the image of a container that is not made yet; one that is there costs a question to its registry.

        With `fresh` what is there of it is taken away before, which is not timed, and is refused where others would
        miss it. An engine that has ``pull`` among its operations fulfils this.
        """
        del fresh, timeout_s
        return self._unsupported("pull", container)

    @abc.abstractmethod
    def create(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Make the container from its settings and set `container.handle`."""

    @abc.abstractmethod
    def start(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Start it; done when the engine says that it runs."""

    def run(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Create and start, as one operation, which lasts as long as both: our own time between them is left out."""
        created = self.create(container, timeout_s=timeout_s)
        spent_ns = created.end_ns - created.start_ns
        started = self.start(container, timeout_s=max(0.001, timeout_s - spent_ns / 1e9))
        return OperationResult(
            started.start_ns - spent_ns, started.end_ns, end_uncertainty_ns=started.end_uncertainty_ns
        )

    @abc.abstractmethod
    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> OperationResult:
        """Run a command beside the container's own; an exit code other than 0 is returned, not raised."""

    @abc.abstractmethod
    def wait(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Wait until its command ends; the exit code is returned, not raised, with `oom_killed`."""

    @abc.abstractmethod
    def pause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Freeze it."""

    @abc.abstractmethod
    def unpause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Thaw it."""

    @abc.abstractmethod
    def stop(self, container: Container, *, grace_s: float, timeout_s: float) -> OperationResult:
        """Ask it to end (SIGTERM), and kill it after `grace_s`."""

    @abc.abstractmethod
    def kill(self, container: Container, signal: str, *, timeout_s: float) -> OperationResult:
        """Send a signal such as ``SIGKILL``; after SIGKILL, done when the container is really dead."""

    def commit(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Save it as an image, noted in `container.images`; for engines that have ``commit`` among `operations`."""
        del timeout_s
        return self._unsupported("commit", container)

    @abc.abstractmethod
    def remove(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Remove it and what hangs on it (anonymous volumes, committed images), running or not."""

    @abc.abstractmethod
    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> OperationResult:
        """Return what its command printed, up to `limit_bytes` of each stream."""

    def read_output(self, container: Container, *, timeout_s: float) -> bytes:
        """Return what the command under way has printed on stdout so far, as far as the engine knows; not timed."""
        return self.logs(container, limit_bytes=PRINTED_LIMIT_BYTES, timeout_s=timeout_s).stdout

    def address(self, container: Container, *, timeout_s: float) -> str:
        """Return the address at which a running container is reached from this host: of services, and not timed."""
        del timeout_s
        now_ns = monotonic_ns()
        text = f"engine {self.name} cannot say at which address {container.name} is reached: it runs no services yet"
        raise OperationFailed("unsupported", text, start_ns=now_ns, end_ns=now_ns)

    def shared_path(self, container: Container, path: str) -> str:
        """Return where one that shares a container's volumes finds what that one has at `path` in a volume."""
        del container
        return path

    def published_port(self, container: Container, *, timeout_s: float) -> int:
        """Return the host's port at which a running container's published one is reached from other hosts."""
        del timeout_s
        now_ns = monotonic_ns()
        text = f"engine {self.name} publishes no ports: give {container.name} the network 'host'"
        raise OperationFailed("unsupported", text, start_ns=now_ns, end_ns=now_ns)

    def committed_bytes(self, container: Container, *, timeout_s: float) -> int | None:
        """Return how much the last `commit` added to the container's image, in bytes; None where nobody can say."""
        del container, timeout_s
        return None

    def cgroup(self, container: Container) -> str | None:
        """Return the path of a running container's control group on this host, as /proc/PID/cgroup has it.

        None where it has none of its own, or the engine does not show it. It may ask the engine: nobody times it.
        """
        del container
        return None

    def cost_meter(self, container: Container) -> CostMeter:
        """Return what tells the cost of a job when its last operation is over, by the names of `bench_common.cost`.

        It is asked for before that operation, which may take the counters away with the container, and outside of its
        time. What nobody knows is left out.
        """
        del container
        return dict

    def stats(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Ask once what it uses; an engine that has ``stats`` among its operations fulfils this."""
        del timeout_s
        return self._unsupported("stats", container)

    def watch(self, container: Container, *, interval_s: float, timeout_s: float) -> Iterator[OperationResult]:
        """Yield reading after reading, `interval_s` apart, until the container is gone or nobody wants more.

        It is driven from a greenlet of its own, which is killed in the end; each reading is done within `timeout_s`.
        """
        begun, count = monotonic(), 0
        while True:
            yield self.stats(container, timeout_s=timeout_s)
            count = max(count + 1, int((monotonic() - begun) / interval_s))
            sleep(max(0.0, begun + count * interval_s - monotonic()))

    def _usable(self) -> EngineStatus:
        """Return what `probe` says; raise `EngineUnavailable` where the engine cannot be used."""
        status = self.probe()
        if not status.usable:
            raise EngineUnavailable(f"engine {self.name!r} cannot be used: {status.reason} ({status.advice})")
        return status

    def _label(self, container: Container) -> None:
        """Note on a container whose it is, before it is made: clean-up goes by nothing else."""
        container.labels.update(self._labels())
        container.labels[TICKET_LABEL] = str(container.ticket)

    def _labels(self) -> dict[str, str]:
        """Return the labels that all containers of this engine have in common."""
        return {
            RUN_LABEL: self.options.run_id,
            WORKER_LABEL: self.options.worker_id,
            OWNER_LABEL: own_label(),
        }

    def _unsupported(self, verb: str, container: Container) -> OperationResult:
        """Raise the failure of a verb that is not among `operations`."""
        now_ns = monotonic_ns()
        text = f"engine {self.name} has no {verb}: {container.name}"
        raise OperationFailed("unsupported", text, start_ns=now_ns, end_ns=now_ns)

    @abc.abstractmethod
    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return what carries Weighbridge's label: of one run or of any, of one worker or of any."""

    @abc.abstractmethod
    def discard(self, leftover: Leftover) -> None:
        """Remove a leftover; one that is gone already is not an error."""


HOST: Final = "host"
LOOPBACK: Final = "127.0.0.1"


def host_network_address(container: Container) -> str:
    """Return the loopback's address for a container in the host's network; else fail with ``refused``."""
    if container.settings.network == HOST:
        return LOOPBACK
    now_ns = monotonic_ns()
    text = f"{container.name} has no address that this host reaches: its network is not the host's"
    raise OperationFailed("refused", text, start_ns=now_ns, end_ns=now_ns)


class ImageUnavailable(Exception):
    """An image is unavailable: `kind` is one of `OperationFailed`'s, the text says why."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class LowLevelEngine(Engine):
    """An engine below Docker: images are fetched before anything is timed; only the host's network is reachable."""

    setup_errors: ClassVar[tuple[type[Exception], ...]]
    """What `_fetch_image` raises when an image is unavailable; the text is for the user."""

    @abstractmethod
    def _fetch_image(self, settings: ContainerSettings) -> None:
        """Fetch the root file system of a container. This may take as long as pulling an image."""

    def missing(self, settings: ContainerSettings) -> list[str]:
        """Fetch the root file system of a container; return why it is unavailable, if it is.

        Settings with neither image nor `rootfs` ask about the rest: the job fetches its image itself.
        """
        if settings.image is None and settings.rootfs is None:
            return []
        try:
            self._fetch_image(settings)
        except self.setup_errors as error:
            return [str(error)]
        return []

    def prepare(self, settings: ContainerSettings) -> None:
        """Fetch the root file system of a container; the job that needs it reports a failure."""
        self.missing(settings)

    def address(self, container: Container, *, timeout_s: float) -> str:
        """Return the loopback's address for a container in the host's network; others cannot be reached."""
        del timeout_s
        return host_network_address(container)
