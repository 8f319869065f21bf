"""What a container is created from in containerd, how its calls fail, and what it takes."""

from pathlib import Path

import pytest

from bench_common.treatment import CONTAINER_SETTINGS, ContainerSettings, Mount
from bench_worker.engines.base import Container, OperationFailed
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.containerd.api import ContainerdApi
from bench_worker.engines.containerd.engine import ContainerdEngine, container_spec
from bench_worker.engines.containerd.tasks import read_metrics
from bench_worker.engines.grpc import GrpcError, GrpcReply
from bench_worker.engines.oci.cgroups import Cgroups
from bench_worker.engines.oci.spec import ImageConfig, UnsupportedSetting, User

IMAGE = ImageConfig(env=("A=1",), command=("sleep", "9"), directory="/data")


def spec(directory=Path("/nowhere"), image=IMAGE, **settings):
    """Return the specification of a container."""
    container = Container("life", 1, ContainerSettings(image="i", **settings))
    return container_spec(
        container, image, User(), directory, cgroups=Cgroups(1, swap_limit=False), allow_host_mounts=False
    )


def calls(reply, failure=None):
    """Return an operation whose calls a test answers."""

    class Service:
        def call(self, _method, _requests, _kind, *, timeout_s, metadata):
            assert timeout_s > 0
            assert metadata == ()
            if failure is not None:
                raise GrpcError(failure[0], failure[1], start_ns=1, end_ns=2)
            return GrpcReply([reply], 1, 2, 0)

    api = ContainerdApi("/nowhere", "ours")
    api._channel = Service()
    return api.calls(5)


def test_each_setting_is_in_the_specification(tmp_path):
    """As an OCI runtime takes it; memory and swap are not limited together."""
    made = spec(
        tmp_path,
        command=("true",),
        network="host",
        memory_bytes=5,
        cpus=0.5,
        cpuset="0-1",
        pids=9,
        ulimits={"nofile": "5"},
        env={"B": "1 2"},
        storage=(Mount("tmpfs", "/t"),),
        files={"/f": "x"},
        read_only=True,
    )
    resources = made["linux"]["resources"]
    assert resources["memory"] == {"limit": 5}
    assert resources["cpu"] == {"quota": 50_000, "period": 100_000, "cpus": "0-1"}
    assert resources["pids"] == {"limit": 9}
    assert made["process"]["rlimits"] == [{"type": "RLIMIT_NOFILE", "soft": 5, "hard": 5}]
    assert made["process"]["args"] == ["true"]
    assert {"A=1", "B=1 2"} <= set(made["process"]["env"])
    assert made["root"] == {"path": "rootfs", "readonly": True}
    assert "network" not in {item["type"] for item in made["linux"]["namespaces"]}
    mounts = {mount["destination"]: mount for mount in made["mounts"]}
    assert mounts["/etc/hosts"]["options"] == ["rbind", "ro"]
    assert mounts["/t"]["options"] == ["rw", "nosuid", "nodev"]
    assert mounts["/f"]["source"] == f"{tmp_path}/files/0"
    assert list(mounts)[-1] == "/f"


def test_without_settings_a_container_is_what_containerds_own_client_makes():
    """No new privileges, 1,024 open files, a /run in memory, no cgroups mounted, and the host's name."""
    made = spec()
    assert made["process"]["noNewPrivileges"] is True
    assert made["process"]["rlimits"] == [{"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 1024}]
    assert (made["process"]["cwd"], made["process"]["args"]) == ("/data", ["sleep", "9"])
    assert "hostname" not in made
    assert made["linux"]["cgroupsPath"] == "/weighbridge/life"
    destinations = {mount["destination"] for mount in made["mounts"]}
    assert "/run" in destinations
    assert not {"/sys/fs/cgroup", "/etc/hosts"} & destinations


def test_what_cannot_be_made_is_refused_before_anything_is_made():
    """A device that is none, by name; and a container without a command."""
    with pytest.raises(UnsupportedSetting, match="/dev/null is no block device"):
        spec(device_read_bps={"/dev/null": 1})
    with pytest.raises(UnsupportedSetting, match="there is no command"):
        spec(image=ImageConfig())


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (14, "so it is", "unreachable"),
        (4, "so it is", "timeout"),
        (2, "so it is", "engine"),
        (2, "context deadline exceeded", "timeout"),
        (5, 'image "x": not found', "image-missing"),
        (5, 'container "x" in namespace "weighbridge": not found', "not-found"),
        (6, 'snapshot "x": already exists', "conflict"),
        (5, "process already finished: not found", "conflict"),
        (2, 'OCI runtime exec failed: exec: "x": executable file not found in $PATH: unknown', "command-not-found"),
    ],
)
def test_a_failed_call_has_the_kind_that_its_message_means(code, message, kind):
    """It keeps containerd's message and the times of the call."""
    with pytest.raises(OperationFailed, match=message[:8]) as caught:
        calls(None, (code, message)).do("containers.v1.Containers/Get", messages.ContainerRequest(id="x"))
    assert (caught.value.kind, caught.value.start_ns, caught.value.end_ns) == (kind, 1, 2)


def test_deleting_what_is_gone_is_no_error():
    """Whatever kind of failure the message means."""
    for message in ("not found", 'image "x": not found', "process already finished: not found"):
        calls(None, (5, message)).do_if_present("images.v1.Images/Delete", messages.ImageRequest(name="x"))


@pytest.mark.parametrize(
    ("version", "metrics", "text"),
    [
        ("v1", messages.CgroupV1Metrics(pids=messages.Pids(current=3)), b'"current": "3"'),
        ("v2", messages.CgroupV2Metrics(cpu={"usage_usec": 7}), b'"usage_usec": "7"'),
        ("v3", messages.Pids(), b'{"type": "io.containerd.cgroups.v3.Metrics"}'),
    ],
)
def test_metrics_are_json(version, metrics, text):
    """Of either version of cgroups; of another, it says only which."""
    reading = messages.Metric(id="life")
    reading.data.type_url, reading.data.value = (
        f"io.containerd.cgroups.{version}.Metrics",
        metrics.SerializeToString(),
    )
    assert text in read_metrics(calls(messages.MetricsResponse(metrics=[reading])), "life")


def test_containerd_takes_all_that_a_container_can_be_given_but_what_it_says():
    """Each setting is enforced, has no meaning, or has its reason."""
    known = ContainerdEngine.settings | ContainerdEngine.inapplicable | ContainerdEngine.unsupported_settings.keys()
    assert known == set(CONTAINER_SETTINGS)
