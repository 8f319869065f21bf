"""What the CRI is asked to create and to stop, and logs in its format."""

import pytest
from deadlines import ANSWER_S

from bench_common.treatment import ContainerSettings, Mount
from bench_worker.engines.base import Container, EngineOptions, OperationFailed
from bench_worker.engines.cost_group import CostGroups
from bench_worker.engines.cri import messages_pb2 as messages
from bench_worker.engines.cri.engine import CriEngine, Pod, container_config, pod_config, split_log
from bench_worker.engines.cri.images import CriImages
from bench_worker.engines.grpc import GrpcError, GrpcReply
from bench_worker.engines.oci.cgroups import Cgroups


class Runtime:
    """Fails so many times with a message, and then does what it is asked."""

    def __init__(self, failures, text):
        self.failures, self.text, self.methods = failures, text, []

    def call(self, method, _requests, _reply, *, timeout_s, metadata):
        assert timeout_s > 0
        assert metadata == ()
        self.methods.append(method.rpartition("/")[2])
        number = len(self.methods)
        if number <= self.failures:
            raise GrpcError(2, self.text, start_ns=number * 10, end_ns=number * 10 + 1)
        return GrpcReply([], number * 10, number * 10 + 1, 0)


class ImageStore:
    """Has one image, and says what it was asked for."""

    def __init__(self, image_id):
        self.image_id, self.asked = image_id, []

    def call(self, method, requests, reply, *, timeout_s, metadata):
        assert timeout_s > 0
        assert metadata == ()
        assert (method.rpartition("/")[2], reply) == ("ImageStatus", messages.ImageStatusResponse)
        self.asked += [request.image.image for request in requests]
        status = reply(image=messages.Image(id=self.image_id)) if self.image_id else reply()
        return GrpcReply([status], 1, 2, 0)


@pytest.mark.parametrize(
    ("image_id", "digest"), [(f"sha256:{'ab' * 32}", "ab" * 32), ("ab" * 32, "ab" * 32), ("", "")]
)
def test_an_image_has_the_digest_that_the_cri_tells(image_id, digest, tmp_path):
    """As containerd and CRI-O write it, with and without the algorithm; nothing where the image is not there."""
    store = ImageStore(image_id)
    engine = object.__new__(CriEngine)
    engine._images = CriImages(store, tmp_path)
    assert engine.image_digest(ContainerSettings(image="i:1")) == digest
    assert engine.image_digest(ContainerSettings()) == ""
    assert store.asked == ["i:1"]


def engine_with(runtime, directory):
    """Return an engine that asks this runtime, and a container of it that was started."""
    engine = CriEngine(EngineOptions(run_id="r", worker_id="w", slots=1))
    engine._channel = runtime
    engine._cost_groups = CostGroups(Cgroups.detect(swap_limit=False))
    container = Container("c", 1, ContainerSettings(image="i"))
    container.handle = Pod(directory, sandbox="s", container="k", started=True)
    return engine, container


@pytest.mark.parametrize("verb", ["stop", "kill"])
def test_what_ends_while_it_is_to_be_stopped_is_stopped(tmp_path, verb):
    """Its shim is gone before containerd has heard of the end: it is asked until it has; the time is that of all."""
    runtime = Runtime(2, f'failed to {verb} container "k": ttrpc: closed: unknown')
    engine, container = engine_with(runtime, tmp_path)
    done = engine.stop(container, grace_s=1, timeout_s=ANSWER_S)
    assert runtime.methods == ["StopContainer"] * 3
    assert (done.start_ns, done.end_ns) == (10, 31)
    runtime = Runtime(1, f'failed to {verb} container "k": ttrpc: closed: unknown')
    engine, container = engine_with(runtime, tmp_path)
    engine.remove(container, timeout_s=ANSWER_S)
    assert runtime.methods == ["StopPodSandbox", "StopPodSandbox", "RemovePodSandbox"]


def test_a_stop_that_fails_for_another_reason_has_failed(tmp_path):
    """It is not tried again."""
    runtime = Runtime(9, "disk quota exceeded")
    engine, container = engine_with(runtime, tmp_path)
    with pytest.raises(OperationFailed, match="disk quota"):
        engine.stop(container, grace_s=1, timeout_s=ANSWER_S)
    assert runtime.methods == ["StopContainer"]


def test_a_pod_and_its_container_carry_labels_and_settings(tmp_path):
    """Also those that are messages of their own; what is not given is not sent."""
    settings = ContainerSettings(
        image="i",
        command=("a", "b"),
        memory_bytes=1 << 26,
        cpus=1.5,
        cpuset="0",
        network="host",
        env={"A": "1"},
        storage=(Mount("volume", "/v", read_only=True),),
        security_options=("seccomp=unconfined",),
    )
    container = Container("c", 1, settings)
    container.labels.update({"weighbridge.run": "r"})
    pod = pod_config(container, tmp_path)
    assert (pod.metadata.name, pod.log_directory, pod.hostname) == ("c", str(tmp_path), "")
    assert dict(pod.labels) == {"weighbridge.run": "r"}
    assert pod.linux.security_context.namespace_options.network == messages.NODE
    made = container_config(container, "i", tmp_path, allow_host_mounts=False)
    assert made.image.image == "i"
    assert list(made.args) == ["a", "b"]
    assert [(env.key, env.value) for env in made.envs] == [("A", "1")]
    assert dict(made.labels) == {"weighbridge.run": "r"}
    [mount] = made.mounts
    assert (mount.container_path, mount.host_path, mount.readonly) == ("/v", f"{tmp_path}/volumes/v", True)
    resources, security = made.linux.resources, made.linux.security_context
    assert (resources.cpu_period, resources.cpu_quota) == (100_000, 150_000)
    assert (resources.memory_limit_in_bytes, resources.cpuset_cpus) == (1 << 26, "0")
    assert security.namespace_options.network == messages.NODE
    assert security.seccomp.profile_type == messages.SecurityProfile.UNCONFINED
    assert not security.HasField("apparmor")


def test_messages_have_the_field_numbers_of_the_cri():
    """Version 1 of its api.proto fixes them for ever."""
    assert messages.ImageRequest(image=messages.ImageSpec(image="i")).SerializeToString().hex() == "0a030a0169"
    status = messages.ContainerStatusResponse.FromString(bytes.fromhex("0a041802382a"))
    assert (status.status.state, status.status.exit_code) == (messages.CONTAINER_EXITED, 42)


def test_a_log_is_split_by_stream():
    """Full lines end, partial ones go on; what is no line of the format is left out."""
    lines = [
        b"2026-01-02T03:04:05.6Z stdout F one",
        b"2026-01-02T03:04:05.7Z stderr F oops",
        b"2026-01-02T03:04:05.8Z stdout P tw",
        b"2026-01-02T03:04:05.9Z stdout F o  2",
        b"nonsense",
    ]
    assert split_log(b"\n".join(lines)) == (b"one\ntwo  2\n", b"oops\n")
