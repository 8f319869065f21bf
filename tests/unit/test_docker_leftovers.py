"""What a container owns beside itself, in an engine that is not the environment's."""

import pytest
from deadlines import ANSWER_S

from bench_common.treatment import ContainerSettings, Mount
from bench_worker.engines.base import Container, OperationFailed
from bench_worker.engines.docker.http import DockerHttp
from bench_worker.engines.docker.leftovers import create_attached, remove_attached


@pytest.fixture
def container():
    storage = (Mount("data_container", "/data"),)
    made = Container("wb-1", 1, ContainerSettings(image="i", storage=storage))
    made.attached_resources.append("4f2e406a")
    return made


@pytest.mark.parametrize("attempt", [create_attached, remove_attached])
def test_an_unreachable_engine_is_called_by_its_own_address(tmp_path, container, attempt):
    """Podman's service is named, and not the Docker Engine that the environment has."""
    address = f"unix://{tmp_path}/podman.sock"
    with pytest.raises(OperationFailed) as caught:
        attempt(DockerHttp(address), container, timeout_s=ANSWER_S)
    assert str(caught.value) == f"{address}: No such file or directory"
    assert caught.value.kind == "unreachable"
    assert container.attached_resources == ["4f2e406a"], "it is still to be removed"
