"""What a container owns beside itself, where the engine that has it is not the one of the environment."""

import pytest
import requests

from bench_common.treatment import ContainerSettings, Mount
from bench_worker.engines.base import Container, OperationFailed
from bench_worker.engines.docker import engine as docker_engine
from bench_worker.engines.docker import leftovers as docker_leftovers

ADDRESS = "unix:///run/user/1000/podman/podman.sock"


class Gone:
    """An engine whose socket nobody serves any more."""

    base_url = "http+unix://gone"
    api_version = "1.41"

    def refuse(self, *_, **__):
        raise requests.ConnectionError(ConnectionRefusedError(111, "Connection refused"))

    create_container = remove_container = get = create_host_config = refuse


@pytest.fixture
def container():
    storage = (Mount("data_container", "/data"),)
    made = Container("wb-1", 1, ContainerSettings(image="i", storage=storage))
    made.attached_resources.append("4f2e406a")
    return made


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(
            lambda one: docker_leftovers.create_attached(Gone(), one, timeout_s=5, address=ADDRESS), id="make"
        ),
        pytest.param(
            lambda one: docker_leftovers.remove_attached(Gone(), one, timeout_s=5, address=ADDRESS), id="remove"
        ),
        pytest.param(lambda _: docker_engine.read_once(Gone(), "c", 5, ADDRESS), id="stats"),
        pytest.param(lambda _: next(docker_engine.read_stream(Gone(), "c", 5, ADDRESS)), id="watch"),
    ],
)
def test_what_cannot_be_reached_is_called_by_its_own_address(container, attempt):
    """Podman's service is named, and not the Docker Engine that the environment has."""
    with pytest.raises(OperationFailed) as caught:
        attempt(container)
    assert str(caught.value) == f"{ADDRESS}: Connection refused"
    assert caught.value.kind == "unreachable"
    assert container.attached_resources == ["4f2e406a"], "it is still to be removed"
