"""What the engines below Docker have in common: images are got ready before anything is timed, networks not made.

Where containers are reached under engines that make no networks: in the host's own, and nowhere else.
"""

from __future__ import annotations

from abc import abstractmethod
from time import monotonic_ns
from typing import TYPE_CHECKING, ClassVar, Final

from bench_worker.engines.base import Container, Engine, OperationFailed

if TYPE_CHECKING:
    from bench_common.treatment import ContainerSettings

HOST: Final = "host"
LOOPBACK: Final = "127.0.0.1"


def host_network_address(container: Container) -> str:
    """Return the loopback's address for a container in the host's network; raise the failure ``refused`` else."""
    if container.settings.network == HOST:
        return LOOPBACK
    now_ns = monotonic_ns()
    text = f"{container.name} has no address that is reached from this host: its network is not the host's"
    raise OperationFailed("refused", text, start_ns=now_ns, end_ns=now_ns)


class ImageUnavailable(Exception):
    """An image that cannot be had: `kind` is one of `OperationFailed`'s, the text says why."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class LowLevelEngine(Engine):
    """An engine whose images come from elsewhere, and whose containers are reached in the host's network alone."""

    setup_errors: ClassVar[tuple[type[Exception], ...]]
    """What `_get_ready` raises where something is in the way; its words are for the user."""

    @abstractmethod
    def _fetch_image(self, settings: ContainerSettings) -> None:
        """Have here what a container is made from. It may take as long as fetching an image does."""

    def missing(self, settings: ContainerSettings) -> list[str]:
        """Say what is in the way of what a container is made from; get it ready where nothing is."""
        try:
            self._fetch_image(settings)
        except self.setup_errors as trouble:
            return [str(trouble)]
        return []

    def prepare(self, settings: ContainerSettings) -> None:
        """Get ready what a container is made from; what is in the way is told by the job that needs it."""
        self.missing(settings)

    def address(self, container: Container, *, timeout_s: float) -> str:
        """Return the loopback's, for a container in the host's network; there is no other way to one."""
        del timeout_s
        return host_network_address(container)
