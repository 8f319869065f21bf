"""What is entered into a container's specification where containerd's client has no option for it."""

import json

import pytest

from bench_common.treatment import CONTAINER_SETTINGS, ContainerSettings
from bench_worker.engines.base import OperationFailed
from bench_worker.engines.containerd import api as containerd_api
from bench_worker.engines.containerd.api import ContainerdApi
from bench_worker.engines.containerd.engine import ContainerdEngine
from bench_worker.engines.grpc import GrpcError, GrpcReply, blob, pack, text, unpack
from bench_worker.engines.oci.settings import UnsupportedSetting

KIND = "types.containerd.io/opencontainers/runtime-spec/1/Spec"


class Service:
    """Stands for containerd: has one container's specification, and keeps what is asked."""

    def __init__(self, document, trouble=None):
        self.document = document
        self.trouble = trouble
        self.asked = []

    def call(self, method, message, *, timeout_s):
        assert timeout_s > 0
        if self.trouble is not None:
            raise GrpcError(self.trouble, "so it is", start_ns=1, end_ns=2)
        self.asked.append((method.rpartition("/")[2], unpack(message)))
        spec = pack({1: KIND, 2: json.dumps(self.document).encode()})
        return GrpcReply(pack({1: pack({1: "life", 5: spec})}), 1, 2, 0)


def specifications(service):
    """Return the specifications of a service that needs no socket."""
    api = ContainerdApi("/nowhere", "ours")
    api._channel = service
    return containerd_api.ContainerSpecs(api)


def test_the_rest_of_a_specification_stays_as_it_is():
    """What is given is entered, and nothing but the specification is written."""
    service = Service({"process": {"args": ["true"]}, "root": {"path": "rootfs"}, "linux": {"cgroupsPath": "/a/b"}})
    settings = ContainerSettings(pids=9, cpuset="0-1", ulimits={"nofile": "5"})
    specifications(service).confine("life", settings, timeout_s=5)
    (asked, told), (changed, update) = service.asked
    assert (asked, text(told, 1), changed) == ("Get", "life", "Update")
    container = unpack(blob(update, 1))
    assert text(container, 1) == "life"
    assert unpack(blob(update, 2))[1] == [b"spec"]
    entered = unpack(blob(container, 5))
    assert text(entered, 1) == KIND
    assert json.loads(blob(entered, 2)) == {
        "process": {"args": ["true"], "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 5, "hard": 5}]},
        "root": {"path": "rootfs"},
        "linux": {"cgroupsPath": "/a/b", "resources": {"pids": {"limit": 9}, "cpu": {"cpus": "0-1"}}},
    }


def test_a_command_is_executed_as_the_containers_own():
    """As the same user, in the same place, with the same rights; without a terminal."""
    own = {"args": ["sleep"], "cwd": "/data", "user": {"uid": 7}, "terminal": True}
    service = Service({"process": own})
    process = specifications(service).process("life", ("echo", "x"), timeout_s=5)
    assert process == {**own, "args": ["echo", "x"], "terminal": False}


@pytest.mark.parametrize(("code", "kind"), [(14, "unreachable"), (4, "timeout"), (2, "engine")])
def test_a_service_that_fails_is_told_of(code, kind):
    """In its own words, with the stamps of the call."""
    with pytest.raises(OperationFailed, match="so it is") as caught:
        specifications(Service({}, code)).confine("life", ContainerSettings(pids=9), timeout_s=5)
    assert (caught.value.kind, caught.value.start_ns, caught.value.end_ns) == (kind, 1, 2)


def test_a_device_that_is_none_is_refused_before_anything_is_made():
    """By name."""
    with pytest.raises(UnsupportedSetting, match="/dev/null is no block device"):
        containerd_api.check_spec_settings(ContainerSettings(device_read_bps={"/dev/null": 1}))
    containerd_api.check_spec_settings(ContainerSettings(pids=9))


def test_what_the_command_line_has_a_word_for_takes_no_second_command():
    """Only the rest does."""
    assert not containerd_api.needs_spec_change(
        ContainerSettings(image="i", memory_bytes=1 << 20, cpus=1, read_only=True)
    )
    assert containerd_api.needs_spec_change(ContainerSettings(image="i", cpuset="0"))


def test_containerd_takes_all_that_a_container_can_be_given_but_what_it_says():
    """Each setting is enforced, has no meaning, or has its reason."""
    told = ContainerdEngine.settings | ContainerdEngine.inapplicable | ContainerdEngine.reasons.keys()
    assert told == set(CONTAINER_SETTINGS)
