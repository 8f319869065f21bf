"""containerd, through its own command line ``ctr``, in a namespace of its own.

A container in containerd is a record and a snapshot; a task is its process. `create` makes the first, `start` the
second, `remove` deletes both. The end of a process is stamped by the reaper's thread, which waits on a pidfd: it is
no child of ours, so its exit code is what containerd tells of it (see `bench_worker.engines.containerd.tasks`).

Finds and removes what runs left in containerd: in our namespace, and only what carries the label.

Turns a container's settings into options of ``ctr``.

What is around the verbs of containerd, and not timed: being found, images, directories of ours, leftovers.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import gevent

from bench_common.errors import InfrastructureError
from bench_worker.engines.base import (
    RUN_LABEL,
    WORKER_LABEL,
    Container,
    DaemonProcesses,
    EngineStatus,
    Leftover,
    OperationFailed,
    OperationResult,
)
from bench_worker.engines.command_line import CommandLine, CommandSequence
from bench_worker.engines.containerd import TRAITS
from bench_worker.engines.containerd import api as containerd_api
from bench_worker.engines.containerd import images as containerd_images
from bench_worker.engines.containerd import probe as containerd_probe
from bench_worker.engines.containerd.api import ContainerdApi, ExecProcess
from bench_worker.engines.containerd.images import ContainerdImages, committed_image_prefix
from bench_worker.engines.containerd.tasks import (
    ERROR_KINDS,
    ExitEvents,
    Task,
    delete_if_present,
    paused_during,
    run_unless_ended,
    wait_ended,
)
from bench_worker.engines.daemon_processes import containerd_daemon
from bench_worker.engines.low_level import LowLevelEngine
from bench_worker.engines.native.container import disk_errors_as_failures, raise_operation_failed, result_at_exit
from bench_worker.engines.oci import bundle as oci_bundle
from bench_worker.engines.oci import cgroups as oci_cgroups
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.cgroups import OomKillCounter
from bench_worker.engines.oci.images import ImageUnavailable
from bench_worker.engines.oci.settings import as_operation_failures, bind_mount, check_settings, make_volumes
from bench_worker.engines.output import parse_signal, read_head
from bench_worker.timing.processes import WaitTimeout

if TYPE_CHECKING:
    from bench_common.treatment import ContainerSettings

ENGINE: Final = "containerd"
_IMAGE: Final = "image"


def find_leftovers(
    cli: CommandLine, run_id: str | None, worker_id: str | None, *, timeout_s: float
) -> list[Leftover]:
    """Return containers and images with the label; raise `InfrastructureError` when containerd does not tell."""
    wanted = [f'labels."{RUN_LABEL}"' if run_id is None else f'labels."{RUN_LABEL}"=="{run_id}"']
    if worker_id is not None:
        wanted.append(f'labels."{WORKER_LABEL}"=="{worker_id}"')
    try:
        names = cli.errand(timeout_s).ask("containers", "ls", "-q", ",".join(wanted)).text.split()
        runs = {name: _run_id_of_container(cli, name, timeout_s) for name in names}
        images = _images(cli, ",".join(wanted), timeout_s)
    except OperationFailed as error:
        raise InfrastructureError(f"containerd cannot say what was left behind: {error}") from error
    return [
        *(Leftover(ENGINE, "container", name, name, run) for name, run in runs.items() if run),
        *(Leftover(ENGINE, _IMAGE, name, name, run) for name, run in images.items()),
    ]


def remove_leftover(cli: CommandLine, leftover: Leftover, home: Path, *, timeout_s: float) -> None:
    """Remove one that still carries the label of its run, and its directory below `home`; gone already is fine.

    With a container goes the image that was made of it and has no label yet. Raises `InfrastructureError`.
    """
    try:
        if leftover.what == _IMAGE:
            if _images(cli, f"name=={leftover.identity}", timeout_s).get(leftover.identity) == leftover.run_id:
                delete_if_present(cli.errand(timeout_s), "images", "rm", "--sync", leftover.identity)
        elif _run_id_of_container(cli, leftover.identity, timeout_s) == leftover.run_id:
            errand = cli.errand(timeout_s)
            delete_if_present(errand, "tasks", "delete", "--force", leftover.identity)
            delete_if_present(errand, "containers", "delete", leftover.identity)
            for image in errand.ask("images", "ls", "-q").text.split():
                if image.startswith(committed_image_prefix(leftover.identity)):
                    delete_if_present(errand, "images", "rm", "--sync", image)
            oci_images.delete_directory(home / leftover.identity)
    except (OperationFailed, OSError) as error:
        raise InfrastructureError(f"{leftover.name} cannot be removed: {error}") from error


def _images(cli: CommandLine, wanted: str, timeout_s: float) -> dict[str, str]:
    """Return the images with our label that a filter lets through, with their runs."""
    # A table with a line of titles: the name comes first, the labels last.
    rows = [row.split() for row in cli.errand(timeout_s).ask("images", "ls", wanted).text.splitlines()[1:]]
    labels = {row[0]: dict(pair.partition("=")[::2] for pair in row[-1].split(",")) for row in rows}
    return {name: pairs[RUN_LABEL] for name, pairs in labels.items() if RUN_LABEL in pairs}


def _run_id_of_container(cli: CommandLine, name: str, timeout_s: float) -> str:
    """Return the run whose label a container carries; nothing where there is no such container any more."""
    errand = cli.errand(timeout_s)
    answer = errand.call("containers", "info", name)
    if answer.exit_code:
        failure = errand.failed(answer)
        if failure.kind == "not-found":
            return ""
        raise failure
    facts: dict[str, Any] = json.loads(answer.stdout)
    return str((facts.get("Labels") or {}).get(RUN_LABEL, ""))


def create_options(container: Container, directory: Path, *, allow_host_mounts: bool) -> list[str]:
    """Return the options of ``containers create`` and ``run``; volumes are below `directory`.

    Raises `UnsupportedSetting` and `MountRefused`.
    """
    settings = container.settings
    options = [f"--label={name}={value}" for name, value in container.labels.items()]
    options += [f"--env={name}={value}" for name, value in settings.env.items()]
    if settings.network == "host":
        options.append("--net-host")
    if settings.memory_bytes is not None:
        options.append(f"--memory-limit={settings.memory_bytes}")
    if settings.cpus is not None:
        options.append(f"--cpus={settings.cpus:g}")
    if settings.read_only:
        options.append("--read-only")
    mounts = [bind_mount(storage, directory, allow_host_mounts=allow_host_mounts) for storage in settings.storage]
    for mount in (*mounts, *oci_bundle.bind_mounts(settings.files, directory)):
        chosen = ":".join(mount["options"])
        options.append(
            f"--mount=type={mount['type']},src={mount['source']},dst={mount['destination']},options={chosen}"
        )
    return options


class ContainerdBase(LowLevelEngine):
    """What is around the verbs; these are in `bench_worker.engines.containerd.engine`."""

    name: ClassVar[str] = "containerd"
    operations: ClassVar[frozenset[str]] = frozenset(
        {
            "pull",
            "create",
            "start",
            "run",
            "exec",
            "wait",
            "pause",
            "unpause",
            "stop",
            "kill",
            "commit",
            "stats",
            "logs",
            "remove",
        }
    )
    settings: ClassVar[frozenset[str]] = frozenset(
        {"image", "command", "memory_bytes", "cpus", "network", "storage", "env", "files"} | containerd_api.SETTINGS
    )
    setup_errors: ClassVar[tuple[type[Exception], ...]] = (ImageUnavailable, OperationFailed)
    inapplicable: ClassVar[frozenset[str]] = TRAITS.inapplicable
    reasons: ClassVar[dict[str, str]] = {
        "init": "containerd brings no init of its own; use a command that reaps its children",
        "runtime": "ctr starts runc, the runtime that it was built with; runtimes are engines of their own",
        "rootfs": "ctr makes no snapshot of a directory; use an OCI runtime",
    }
    lacks: ClassVar[dict[str, str]] = dict.fromkeys(
        ("checkpoint", "restore"), "ctr restores what was saved only as another container"
    )

    @classmethod
    def probe(cls) -> EngineStatus:
        """Ask containerd for its version."""
        return containerd_probe.probe_containerd(
            cls.name,
            operations=cls.operations,
            settings=cls.settings,
            inapplicable=cls.inapplicable,
            reasons=cls.reasons,
            lacks=cls.lacks,
        )

    @classmethod
    def daemon_processes(cls) -> DaemonProcesses:
        """Return the containerd that listens at the present address, with its shims."""
        return containerd_daemon(containerd_probe.address())

    def open(self) -> None:
        """See that it answers, and begin to hear of exits."""
        self._usable()
        socket = containerd_probe.address()
        ctr, *options = program = containerd_probe.program(socket)
        self._cli = CommandLine(ctr, tuple(options), error_kinds=ERROR_KINDS)
        self._cgroups = oci_cgroups.Cgroups.look(swap_limit=False)
        self._home = oci_images.make_private(oci_images.containers_directory(self.name))
        self._images = ContainerdImages(self._cli, self._home)
        self._exits = ExitEvents(program, containerd_probe.NAMESPACE)
        self._exits.open()
        self._api = ContainerdApi(socket, containerd_probe.NAMESPACE)
        self._specifications = containerd_api.ContainerSpecs(self._api)

    def close(self) -> None:
        """Hear no more, and close the connections."""
        self._exits.close()
        self._api.close()

    def _fetch_image(self, settings: ContainerSettings) -> None:
        self._images.get(settings.image)

    def leftovers(self, run_id: str | None = None, worker_id: str | None = None) -> list[Leftover]:
        """Return the containers and images of our namespace that carry the label."""
        return find_leftovers(self._cli, run_id, worker_id, timeout_s=self.options.timeout_s)

    def discard(self, leftover: Leftover) -> None:
        """Delete one of them, if it still carries the label of that run."""
        remove_leftover(self._cli, leftover, self._home, timeout_s=self.options.timeout_s)

    def _before(self, container: Container, *words: str) -> tuple[str, ...]:
        """Get a container's directory and image ready, which is not timed; return the command that makes it."""
        begun_ns = time.monotonic_ns()
        self._label(container)
        directory = self._home / container.name
        with as_operation_failures(begun_ns):
            check_settings(type(self), container.settings, self._cgroups)
            containerd_api.check_spec_settings(container.settings)
            image = container.pulled_image or self._images.get(container.settings.image)
            options = create_options(container, directory, allow_host_mounts=self.options.allow_host_mounts)
        with disk_errors_as_failures(begun_ns):
            directory.mkdir(mode=0o700)
            container.handle = task = Task(directory, image)
            make_volumes(container.settings, directory)
            oci_bundle.write_files(container.settings.files, directory)
        if words[0] == "run":
            options += task.options
        return (*words, *options, "--", image, container.name, *(container.settings.command or ()))

    def _task(self, container: Container) -> Task:
        if not isinstance(container.handle, Task):
            raise_operation_failed("not-found", f"{container.name} does not exist", time.monotonic_ns())
        return container.handle


_EXIT_EVENT_TIMEOUT_S: Final = 10.0
"""How long after the end of a process containerd may take to tell its exit code."""


class ContainerdEngine(ContainerdBase):
    """Drives containerd by ``ctr``; see the module's text."""

    def pull(self, container: Container, *, fresh: bool, timeout_s: float) -> OperationResult:
        """``images pull``, which unpacks it, too."""
        with as_operation_failures(time.monotonic_ns()):
            errand, container.pulled_image = self._images.pull(
                container.settings.image, fresh=fresh, timeout_s=timeout_s
            )
        return errand.done()

    def create(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``containers create``: a snapshot and a record."""
        words = self._before(container, "containers", "create")
        errand = self._cli.errand(timeout_s)
        errand.do(*words)
        if containerd_api.needs_spec_change(container.settings):
            self._specifications.confine(container.name, container.settings, timeout_s=errand.remaining_s())
        return errand.done()

    def start(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``tasks start --detach``; what is left of a task that has ended goes before."""
        task = self._task(container)
        errand = self._cli.errand(timeout_s)
        if task.started and task.main is not None and task.main.exit is not None:
            errand.do("tasks", "delete", container.name)
        return self._launch(container, errand, "tasks", "start", "--detach", *task.options, container.name)

    def run(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``run --detach``: both in one. Two commands where its specification has to be changed in between."""
        if containerd_api.needs_spec_change(container.settings):
            return super().run(container, timeout_s=timeout_s)
        words = self._before(container, "run", "--detach")
        return self._launch(container, self._cli.errand(timeout_s), *words)

    def exec(self, container: Container, argv: tuple[str, ...], *, timeout_s: float) -> OperationResult:
        """Run a command with containerd's task API, streams attached; at the timeout the command is killed, too."""
        task = self._task(container)
        if not argv:
            raise_operation_failed("refused", "there is no command to start", time.monotonic_ns())
        task.execs += 1
        exec_id = f"exec-{task.execs}"
        deadline = time.monotonic() + timeout_s
        process = self._specifications.process(container.name, argv, timeout_s=timeout_s)
        kills = OomKillCounter(self._memory_directory(container))
        execution = ExecProcess(self._api, container.name, exec_id, task.directory)
        done = execution.run(process, timeout_s=deadline - time.monotonic())
        done.oom_killed = kills.explain(done)
        return done

    def wait(self, container: Container, *, timeout_s: float) -> OperationResult:
        """Wait for the end of the process (stamped), and for containerd to tell its exit code."""
        start_ns = time.monotonic_ns()
        task = self._task(container)
        if not task.started:
            raise_operation_failed("conflict", f"{container.name} was never started", start_ns)
        done = wait_ended(task, start_ns, timeout_s)
        done.exit_code = self._exits.code(container.name, _EXIT_EVENT_TIMEOUT_S)
        if done.exit_code is None:
            raise_operation_failed(
                "engine",
                f"containerd has not told how {container.name} ended, {_EXIT_EVENT_TIMEOUT_S:g} s later",
                start_ns,
            )
        directory = self._memory_directory(container)
        done.oom_killed = bool(done.exit_code) and directory is not None and oci_cgroups.oom_kills(directory) > 0
        return done

    def _memory_directory(self, container: Container) -> Path | None:
        """Return the directory of its cgroup; None where its memory is not limited."""
        if container.settings.memory_bytes is None:
            return None
        return self._cgroups.memory_directory(f"/{containerd_probe.NAMESPACE}/{container.name}")

    def pause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``tasks pause``."""
        done = self._run_simple(container, timeout_s, "tasks", "pause")
        self._task(container).paused = True
        return done

    def unpause(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``tasks resume``."""
        done = self._run_simple(container, timeout_s, "tasks", "resume")
        self._task(container).paused = False
        return done

    def stop(self, container: Container, *, grace_s: float, timeout_s: float) -> OperationResult:
        """``tasks kill`` with the image's stop signal and, after `grace_s`, with SIGKILL; done when it is dead."""
        task = self._task(container)
        deadline = time.monotonic() + timeout_s
        errand = self._cli.errand(timeout_s)
        if not task.started or task.main is None or task.main.exit is not None:
            return errand.done()
        run_unless_ended(errand, task.main, "tasks", "kill", container.name)
        if grace_s < timeout_s:
            with suppress(WaitTimeout):
                return self._await_exit_event(container, result_at_exit(errand.start_ns, task.main.wait(grace_s)))
            run_unless_ended(errand, task.main, "tasks", "kill", "--signal", "SIGKILL", container.name)
        return self._await_exit_event(container, wait_ended(task, errand.start_ns, deadline - time.monotonic()))

    def kill(self, container: Container, signal: str, *, timeout_s: float) -> OperationResult:
        """``tasks kill``. After SIGKILL, done when the process is dead."""
        task = self._task(container)
        deadline = time.monotonic() + timeout_s
        try:
            number = parse_signal(signal)
        except ValueError as error:
            raise_operation_failed("refused", str(error), time.monotonic_ns())
        errand = self._cli.errand(timeout_s)
        errand.do("tasks", "kill", "--signal", number.name, container.name)
        if number.name != "SIGKILL" or task.main is None:
            return errand.done()
        return self._await_exit_event(container, wait_ended(task, errand.start_ns, deadline - time.monotonic()))

    def commit(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``snapshots diff``, while it is paused, then ``images import`` of that on top of its image, and labels."""
        task = self._task(container)
        before = self._cli.errand(timeout_s)
        base = containerd_images.base_image(before, task.image, container.name)
        layer, archive = task.directory / "layer.tar", task.directory / "image.tar"
        name = f"{containerd_images.committed_image_prefix(container.name)}{len(container.images) + 1}"
        errand = self._cli.errand(before.remaining_s())
        try:
            with paused_during(errand, container.name, task):
                errand.do(*containerd_images.DIFF, container.name, stdout_path=str(layer))
            with disk_errors_as_failures(errand.start_ns):
                work = (layer, archive, base, container)
                packing = gevent.get_hub().threadpool.spawn(containerd_images.write_image_archive, *work)
                try:
                    task.committed_bytes = packing.get(timeout=errand.remaining_s())
                except gevent.Timeout:
                    raise errand.failure("timeout", "the image was not packed in its time") from None
            errand.do("images", "import", "--index-name", name, str(archive))
            container.images.append(name)
            errand.do("images", "label", name, *(f"{key}={value}" for key, value in container.labels.items()))
        finally:
            for path in (layer, archive):
                path.unlink(missing_ok=True)
        return errand.done()

    def committed_bytes(self, container: Container, *, timeout_s: float) -> int | None:
        """Return the size of the files in the layer that the last `commit` added."""
        del timeout_s
        return self._task(container).committed_bytes

    def remove(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``tasks delete --force`` where it was started, ``containers delete``, and its images."""
        task = self._task(container)
        errand = self._cli.errand(timeout_s)
        if task.started:
            delete_if_present(errand, "tasks", "delete", "--force", container.name)
        delete_if_present(errand, "containers", "delete", container.name)
        while container.images:
            delete_if_present(errand, "images", "rm", "--sync", container.images[-1])
            container.images.pop()
        with disk_errors_as_failures(errand.start_ns):
            oci_images.delete_directory(task.directory)
        self._exits.forget(container.name)
        container.handle = None
        return errand.done()

    def logs(self, container: Container, *, limit_bytes: int, timeout_s: float) -> OperationResult:
        """Return what its command wrote; containerd puts both streams in one file, so all of it is `stdout`."""
        del timeout_s
        start_ns = time.monotonic_ns()
        stdout, cut = read_head(self._task(container).directory / "log", limit_bytes)
        return OperationResult(start_ns, time.monotonic_ns(), stdout=stdout, truncated=cut)

    def stats(self, container: Container, *, timeout_s: float) -> OperationResult:
        """``tasks metrics``: one reading, as JSON in `stdout`."""
        self._task(container)
        errand = self._cli.errand(timeout_s)
        answer = errand.do("tasks", "metrics", "--format", "json", container.name)
        return errand.done(stdout=answer.stdout)

    def _launch(self, container: Container, errand: CommandSequence, *words: str) -> OperationResult:
        """Start the process, by a command that ends before it, and watch it from then on."""
        task = self._task(container)
        self._exits.expect(container.name)
        errand.do(*words)
        task.watch(errand.start_ns)
        return errand.done()

    def _run_simple(self, container: Container, timeout_s: float, *words: str) -> OperationResult:
        self._task(container)
        errand = self._cli.errand(timeout_s)
        errand.do(*words, container.name)
        return errand.done()

    def _await_exit_event(self, container: Container, done: OperationResult) -> OperationResult:
        """Let containerd see that the process has ended, before it is asked to delete its task: not timed."""
        self._exits.code(container.name, _EXIT_EVENT_TIMEOUT_S)
        return done
