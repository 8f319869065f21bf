"""What the engines of OCI runtimes and containerd work out before they call anything: config.json, limits, words."""

import json
import os
import subprocess

import pytest

from bench_common.requirements import NETWORK_CHOICE, UNNAMED_VOLUMES, unsupported_features
from bench_common.treatment import ContainerSettings, Lifecycle, Mount, Operation, Treatment
from bench_worker.engines.command_line import CommandLine, ProgramResult
from bench_worker.engines.containerd.engine import ContainerdEngine
from bench_worker.engines.cri.engine import CriEngine
from bench_worker.engines.grpc import ERROR_KINDS as CTR_KINDS
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.cgroups import Cgroups, oom_kills
from bench_worker.engines.oci.runtime import ERROR_KINDS, RuntimeCommandSequence, kill_from_pid_file
from bench_worker.engines.oci.runtimes import RuncEngine, RunscEngine
from bench_worker.engines.oci.spec import (
    HostContext,
    ImageConfig,
    UnsupportedSetting,
    User,
    bind_mount,
    check_settings,
    make_config,
    read_user,
)
from bench_worker.engines.settings import MountRefused

PASSWD = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1001:Ann:/home/ann:/bin/sh\n"
GROUP = "root:x:0:\nstaff:x:50:ann,bob\nann:x:1001:\n"
PLACE = HostContext("/r", "/weighbridge/c1", cgroup_v2=False, swap_limit=True, annotations={"weighbridge.run": "x"})
RATES = ("device_read_bps", "device_write_bps", "device_read_iops", "device_write_iops")
LIMITS = {"memory_bytes", "cpus", "cpuset", "pids", *RATES}
ANYTHING = Cgroups(1, swap_limit=True)


class Host:
    """A host whose files are these."""

    def __init__(self, **files):
        self.files = {f"/{name.replace('__', '/')}": text for name, text in files.items()}

    def text(self, path):
        return self.files.get(path)

    def exists(self, path):
        return path in self.files


def config(base=None, image=None, place=PLACE, **settings):
    return make_config(base or {}, image or ImageConfig(), ContainerSettings(**settings), User(), place)


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("", User(0, 0, (), "/root")),
        ("ann", User(1000, 1001, (50,), "/home/ann")),
        ("1000", User(1000, 1001, (50,), "/home/ann")),
        ("ann:staff", User(1000, 50, (), "/home/ann")),
        ("7:8", User(7, 8, (), "/")),
    ],
)
def test_an_images_user_is_looked_up_in_its_own_files(text, user):
    """By name or number, with the groups that the files give, unless a group is named."""
    assert read_user(text, PASSWD, GROUP) == user


@pytest.mark.parametrize("text", ["nobody", "ann:wheel"])
def test_a_user_that_an_image_does_not_have_is_an_error(text):
    """The name is told."""
    with pytest.raises(ValueError, match=text.rpartition(":")[2]):
        read_user(text, PASSWD, GROUP)


def test_the_command_is_put_together_as_docker_does():
    """The entry point stays, what is given takes the place of the image's command."""
    image = ImageConfig.read({"Entrypoint": ["/e"], "Cmd": ["a"], "Env": ["A=1", "PATH=/x"], "WorkingDir": "/w"})
    assert config(image=image)["process"]["args"] == ["/e", "a"]
    made = config(image=image, command=("b", "c"), env={"A": "2"})["process"]
    assert (made["args"], made["cwd"]) == (["/e", "b", "c"], "/w")
    assert set(made["env"]) == {"A=2", "PATH=/x", "HOME=/root"}
    assert made["terminal"] is False


def test_limits_and_networks_are_where_a_runtime_looks_for_them():
    """Memory and swap together, a CPU quota in its period, and no network of its own for `host`."""
    linux = config(memory_bytes=1 << 26, cpus=1.5, cpuset="0-1", network="host")["linux"]
    assert linux["resources"]["memory"] == {"limit": 1 << 26, "swap": 1 << 26}
    assert linux["resources"]["cpu"] == {"quota": 150_000, "period": 100_000, "cpus": "0-1"}
    assert "network" not in {item["type"] for item in linux["namespaces"]}
    plain = config()["linux"]
    assert {"network", "pid"} <= {item["type"] for item in plain["namespaces"]}
    assert set(plain["resources"]) == {"devices"}


def test_swap_is_left_alone_where_it_cannot_be_limited():
    """A runtime would fail on a file that the kernel does not have."""
    place = HostContext("/r", "/c", cgroup_v2=True, swap_limit=False)
    made = config(place=place, memory_bytes=1 << 26)["linux"]
    assert made["resources"]["memory"] == {"limit": 1 << 26}
    assert "cgroup" in {item["type"] for item in made["namespaces"]}


def test_a_config_of_the_users_own_is_kept():
    """All but what the scenario says, and what has to be ours: root, labels, cgroup, no terminal."""
    base = {
        "process": {"args": ["own"], "env": ["B=1"], "terminal": True, "user": {"uid": 5}},
        "root": {"path": "rootfs", "readonly": True},
        "annotations": {"theirs": "1"},
        "linux": {"namespaces": [{"type": "pid"}], "cgroupsPath": "/elsewhere"},
    }
    made = config(base, env={"C": "2"})
    assert made["process"] == {"args": ["own"], "env": ["B=1", "C=2"], "terminal": False, "user": {"uid": 5}}
    assert made["root"] == {"path": "/r", "readonly": True}
    assert made["annotations"] == {"theirs": "1", "weighbridge.run": "x"}
    assert made["linux"] == {"namespaces": [{"type": "pid"}], "cgroupsPath": "/weighbridge/c1", "resources": {}}
    assert config(base, command=("mine",))["process"]["args"] == ["mine"]
    assert base["process"]["terminal"] is True


def test_what_cgroups_can_enforce_is_read_from_the_host():
    """Version 1 by its files, version 2 by its list of controllers, and swap that nobody limits rules memory out."""
    memory = {"sys__fs__cgroup__memory__memory.limit_in_bytes": "0", "proc__meminfo": "SwapTotal: 0 kB"}
    first = Cgroups.detect(Host(**memory))
    assert (first.version, first.swap_limit, set(first.unenforced) & LIMITS) == (
        1,
        False,
        {"cpus", "cpuset", "pids", *RATES},
    )
    swapping = Cgroups.detect(Host(**{**memory, "proc__meminfo": "SwapTotal: 8 kB"}))
    assert "swap" in swapping.unenforced["memory_bytes"]
    second = Host(**{"sys__fs__cgroup__cgroup.controllers": "memory cpu", "proc__meminfo": "SwapTotal: 8 kB"})
    assert (Cgroups.detect(second).version, set(Cgroups.detect(second).unenforced) & LIMITS) == (
        2,
        {"cpuset", "pids", *RATES},
    )
    assert "memory_bytes" in Cgroups.detect(second, swap_limit=False).unenforced
    assert str(Cgroups(1, swap_limit=True).memory_directory("/a/b")) == "/sys/fs/cgroup/memory/a/b"
    assert str(Cgroups(2, swap_limit=True).memory_directory("/a/b")) == "/sys/fs/cgroup/a/b"


@pytest.mark.parametrize(
    ("name", "text", "kills"),
    [
        ("memory.events", "low 0\noom 3\noom_kill 2\n", 2),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", 1),
        ("memory.oom_control", "oom_kill_disable 0\n", 0),
        ("cgroup.procs", "", 0),
    ],
)
def test_kills_for_want_of_memory_are_counted_by_the_kernel(tmp_path, name, text, kills):
    """In another file for each version; an old kernel counts none."""
    (tmp_path / name).write_text(text)
    assert oom_kills(tmp_path) == kills


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pids": 64}, ("pids=64", "gVisor's own threads")),
        ({"init": True}, ("init=True", "no init of its own")),
        ({"network": "hots"}, ("'hots'", "did you mean 'host'?", "'none' or 'host'")),
        ({"cpuset": "1-0"}, ("cpuset",)),
    ],
)
def test_what_a_runtime_would_ignore_is_refused_by_name(settings, words):
    """With the value and the reason."""
    with pytest.raises(UnsupportedSetting) as caught:
        check_settings(RunscEngine, ContainerSettings(**settings), ANYTHING)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_log_settings_have_no_meaning_for_a_runtime():
    """They are left out, and no reason to refuse."""
    check_settings(RunscEngine, ContainerSettings(log_driver="none", log_options={"a": "b"}), ANYTHING)


def test_storage_becomes_mounts(tmp_path):
    """A volume is a directory beside the container's, a host directory only where it is allowed; none has a name."""
    tmpfs = bind_mount(Mount("tmpfs", "/t", size_bytes=9, read_only=True), tmp_path, allow_host_mounts=False)
    assert tmpfs["options"] == ["ro", "nosuid", "nodev", "size=9"]
    volume = bind_mount(Mount("volume", "/a/b"), tmp_path, allow_host_mounts=False)
    assert (volume["source"], volume["options"]) == (f"{tmp_path}/volumes/a%2Fb", ["rbind", "rw"])
    with pytest.raises(UnsupportedSetting, match="data"):
        bind_mount(Mount("volume", "/a", "data"), tmp_path, allow_host_mounts=False)
    with pytest.raises(MountRefused, match="does not allow"):
        bind_mount(Mount("host", "/a", str(tmp_path)), tmp_path, allow_host_mounts=False)
    assert bind_mount(Mount("host", "/a", str(tmp_path)), tmp_path, allow_host_mounts=True)["source"] == str(tmp_path)


def test_each_engine_says_which_processes_are_its_own(monkeypatch):
    """A runtime has none, but for gVisor's sandboxes; containerd and a CRI are what listens on the socket."""
    assert not RuncEngine.daemon_processes()
    assert RunscEngine.daemon_processes().state == str(oci_images.STATE_ROOT / "runsc")
    monkeypatch.setenv("CONTAINERD_ADDRESS", "/c.sock")
    monkeypatch.setenv("CONTAINER_RUNTIME_ENDPOINT", "unix:///r.sock")
    assert ContainerdEngine.daemon_processes().sockets == ("/c.sock",)
    assert CriEngine.daemon_processes().sockets == ("/r.sock",)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ('exec failed: unable to start container process: exec: "x": executable file not found in $PATH', 0),
        ("executable file `x` not found in $PATH: No such file or directory", 0),
        ('executing command "x" in sandbox: failed to load x: no such file or directory', 0),
        ("exec process failed with error error in executing process : executable 'x' not found in $PATH", 0),
        ('exec failed: unable to start container process: exec: "/etc/passwd": permission denied', 1),
        ("open executable: Permission denied", 1),
        ("error in executing process : executable '/p' at path '\"/p\"' does not have correct permissions", 1),
        ("container does not exist", 2),
        ("the container `c` is not running", 3),
        ('cannot execute in container "c" in state paused', 3),
        ("failed operation due to incompatible container status: `Stopped`", 3),
        ("write /x: no space left on device", 4),
        ("something else", 5),
    ],
)
def test_what_runtimes_say_has_a_kind(said, kind):
    """The words of runc, crun, runsc and youki for the same thing are the same kind."""
    kinds = ("command-not-found", "not-executable", "not-found", "conflict", "disk-full", "engine")
    assert CommandLine("runc", error_kinds=ERROR_KINDS).classify_error(said) == kinds[kind]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ('ctr: image "x": not found', "image-missing"),
        ('ctr: container "x" in namespace "weighbridge": not found', "not-found"),
        ('ctr: snapshot "x": already exists', "conflict"),
        ("ctr: process already finished: not found", "conflict"),
        ('ctr: failed to dial "/x.sock": context deadline exceeded', "unreachable"),
        ('ctr: OCI runtime exec failed: exec: "x": executable file not found in $PATH: unknown', "command-not-found"),
    ],
)
def test_what_ctr_says_has_a_kind(said, kind):
    """The first that fits, from the particular to the general."""
    assert CommandLine("ctr", error_kinds=CTR_KINDS).classify_error(said) == kind


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        ("", ""),
        ('{"level":"warning","msg":"a"}\n', ""),
        ('{"level":"error","msg":"a"}\n{"level":"error","msg":"b"}\n{"level":"info","msg":"c"}', "b"),
        ('{"msg":"a","level":"error"}{"msg":"b","level":"error"}', "b"),
        (json.dumps({"level": "ERROR", "message": "a\n\nStack backtrace:\n 0: x"}), "a"),
        ('{"level":"error","msg":"a"}\n{"level":"err', "a"),
    ],
)
def test_a_runtimes_own_errors_are_those_in_its_log(tmp_path, log, complaint):
    """The last one, whatever the runtime calls its text, also from a log that is cut or has no lines."""
    (tmp_path / "log").write_text(log)
    sequence = RuntimeCommandSequence(CommandLine("runc", error_kinds=ERROR_KINDS), 1, log=tmp_path / "log")
    assert sequence.error_text() == complaint
    answer = ProgramResult(
        ("exec",), 1, b"", b"of the command", truncated=False, start_ns=1, end_ns=2, end_uncertainty_ns=0, cpu_s=0
    )
    assert str(sequence.failed(answer)) == (complaint or "of the command")


def test_of_a_log_without_end_only_the_last_lines_are_read(tmp_path):
    """The loop waits while a log is read and searched: its length must not decide for how long."""
    entry = '{"level":"error","msg":"disk quota exceeded"}\n'
    sequence = RuntimeCommandSequence(CommandLine("runc", error_kinds=ERROR_KINDS), 1, log=tmp_path / "log")
    (tmp_path / "log").write_text(f"{'x' * 1_000_000}\n{entry}")
    assert sequence.error_text() == "disk quota exceeded"
    (tmp_path / "log").write_text('{"a":' * 50_000)
    assert sequence.error_text() == ""


LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    ("log", "is_error"),
    [
        (f'{{"level":"error","msg":"{LONG}"}}', True),
        (f'{{"msg":"{LONG}","level":"error"}}\n', True),
        (f'{{"level":"info","msg":"a"}}\n{{"level":"error","msg":"{LONG}"}}\n', True),
        (f'{{"level":"error","msg":"a"}}\n{LONG}', True),
        (f'{{"level":"warning","msg":"{LONG}"}}', False),
        (f'{{"msg":"{LONG}","level":"info"}}', False),
        (f'{{"level":"error","msg":"{LONG}\\"level\\":\\"info\\""}}', True),
    ],
)
def test_an_entry_that_is_longer_than_what_is_read_of_a_log_is_an_error(tmp_path, log, is_error):
    """Unless it has another level: the exit code was taken for the command's own."""
    (tmp_path / "log").write_text(log)
    sequence = RuntimeCommandSequence(CommandLine("runc", error_kinds=ERROR_KINDS), 1, log=tmp_path / "log")
    assert sequence.error_text().startswith("the runtime's last error fills more than 256 KiB") is is_error
    assert bool(sequence.error_text()) is is_error


def test_a_network_or_a_named_volume_that_an_engine_lacks_is_refused_beforehand():
    """With what there is instead; an engine that says nothing of them has all."""
    settings = ContainerSettings(image="i", network="bridge", storage=(Mount("volume", "/v", "data"),))
    job = Lifecycle((Operation("run", "run"),))
    treatment = Treatment(0, {"engine": "runc"}, None, "runc", job, settings)
    status = {"name": "runc", "usable": True, "operations": ["run"], "settings": ["image", "network", "storage"]}
    assert unsupported_features(status, treatment) == []
    said = unsupported_features(
        {**status, "details": {NETWORK_CHOICE: "none host", UNNAMED_VOLUMES: "yes"}}, treatment
    )
    assert said == [
        "engine 'runc' has no network 'bridge'; it has: none, host",
        "engine 'runc' has no volumes with a name, such as 'data': leave it empty",
    ]


def test_a_process_of_the_host_is_not_killed_for_a_command_of_a_container(tmp_path):
    """The command may have ended, and its pid be anybody's by now: it has to be in the container's namespace."""
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            (tmp_path / "exec.pid").write_text(str(stranger.pid))
            for first in (os.getpid(), stranger.pid):
                kill_from_pid_file(tmp_path / "exec.pid", first)
            assert stranger.poll() is None
        finally:
            stranger.kill()
    kill_from_pid_file(tmp_path / "exec.pid", os.getpid())


def test_a_container_works_in_the_directory_that_it_is_given():
    """In the place of the image's own."""
    image = ImageConfig(directory="/image")
    assert config(image=image)["process"]["cwd"] == "/image"
    assert config(image=image, directory="/srv")["process"]["cwd"] == "/srv"


def test_an_image_that_another_worker_is_deleting_is_asked_of_nobody(tmp_path, monkeypatch):
    """Its directory has another name by then, which is no image's."""
    asked = []

    class Engine:
        def inspect_image(self, name):
            asked.append(name)

    monkeypatch.setattr(oci_images, "STORE", tmp_path)
    for name in ("aa", ".bb.old", ".cc.new"):
        folder = tmp_path / "images" / name
        folder.mkdir(parents=True)
        (folder / oci_images._CONFIG).write_text("{}")
    oci_images._prune(Engine())
    assert asked == ["aa"]
