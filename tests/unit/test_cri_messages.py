"""What the CRI is asked to create, and logs in its format."""

from bench_common.treatment import ContainerSettings, Mount
from bench_worker.engines.base import Container
from bench_worker.engines.cri import messages_pb2 as messages
from bench_worker.engines.cri.engine import container_config, pod_config, split_log


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
