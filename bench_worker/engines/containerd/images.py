"""Takes images into containerd's namespace of ours from the Docker Engine, each once for each digest."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any, Final

import docker
import docker.errors
from gevent.lock import RLock

from bench_worker.engines import oci_homes
from bench_worker.engines.docker_pull import BY_MESSAGE
from bench_worker.engines.oci.images import ImageTrouble, lent_client

if TYPE_CHECKING:
    from pathlib import Path

    from bench_worker.engines.command_line import CommandLine, Errand

PREFIX: Final = "weighbridge.invalid/image:"
"""What the images that we import are called, before the digest of their configuration; it can be no real registry."""
_IMPORT_S: Final = 300.0
_REGISTRY: Final = re.compile(r"[.:]|^localhost$")
"""What tells a registry's name from the first part of an image's."""
_TAGGED: Final = re.compile(r"[:@]")


class ContainerdImages:
    """The images of our namespace. Each is imported by the first that wants it, while the others wait."""

    def __init__(self, cli: CommandLine, folder: Path) -> None:
        self._cli = cli
        self._folder = folder
        self._names: dict[str, str] = {}
        self._lock = RLock()

    def get(self, image: str | None) -> str:
        """Return the name in containerd of what `image` is in the Docker Engine; raise `ImageTrouble`."""
        if image is None:
            raise ImageTrouble("refused", "an `image` is needed to make a container from")
        with self._lock:
            if image not in self._names:
                with lent_client(f"image {image}") as client:
                    self._names[image] = self._import(client, image)
            return self._names[image]

    def pull(self, image: str | None, *, anew: bool, timeout_s: float) -> tuple[Errand, str]:
        """Fetch an image from its registry into our namespace; return the errand, and what it is called there.

        With `anew` what our namespace has of it is taken away before, untimed, once the registry has shown by a pull
        that it can bring it back. Raises `ImageTrouble` where a container is made from it, and `OperationFailed`.
        """
        name = full_name(image)
        if anew:
            before = self._cli.errand(timeout_s)
            if name in before.ask("images", "ls", "-q").text.split():
                if name in before.ask("containers", "ls").text.split():
                    raise ImageTrouble("conflict", f"image {name} is not taken away: a container is made from it")
                _pull(before, name)
                before.ask("images", "rm", "--sync", name)
        errand = self._cli.errand(timeout_s)
        _pull(errand, name)
        return errand, name

    def _import(self, client: docker.APIClient, image: str) -> str:
        facts: dict[str, Any] = client.inspect_image(image)  # type: ignore[no-untyped-call]
        name = PREFIX + str(facts["Id"]).rpartition(":")[2]
        errand = self._cli.errand(_IMPORT_S)
        present = errand.ask("images", "ls", "-q").text.split()
        if name in present:
            return name
        archive = oci_homes.make_private(self._folder) / f".{secrets.token_hex(8)}.tar"
        try:
            with archive.open("wb") as file:
                for chunk in client.get_image(facts["Id"]):
                    file.write(chunk)
            errand.ask("images", "import", "--index-name", name, str(archive))
        finally:
            archive.unlink(missing_ok=True)
        self._prune(client, present)
        return name

    def _prune(self, client: docker.APIClient, present: list[str]) -> None:
        """Remove what the Docker Engine no longer has, unless somebody is at work."""
        errand = self._cli.errand(_IMPORT_S)
        for name in present:
            if name.startswith(PREFIX) and not errand.ask("containers", "ls", "-q").text:
                try:
                    client.inspect_image(name.removeprefix(PREFIX))  # type: ignore[no-untyped-call]
                except docker.errors.ImageNotFound:
                    errand.call("images", "rm", name)


def full_name(image: str | None) -> str:
    """Return an image's name with its registry and tag, as containerd wants it; raise `ImageTrouble` without one.

    What Docker's commands leave out is what they would put in (`reference grammar
    <https://pkg.go.dev/github.com/distribution/reference>`_).
    """
    if not image:
        raise ImageTrouble("refused", "there is no image to pull")
    first, slash, _ = image.partition("/")
    if not slash:
        image = f"docker.io/library/{image}"
    elif not _REGISTRY.search(first):
        image = f"docker.io/{image}"
    last = image.rpartition("/")[2]
    return image if _TAGGED.search(last) else f"{image}:latest"


def _pull(errand: Errand, name: str) -> None:
    answer = errand.call("images", "pull", name)
    if answer.exit_code:
        said = answer.complaint.rpartition("\n")[2]
        kind = next((kind for kind, pattern in BY_MESSAGE if pattern.search(said)), errand.cli.kind_of(said))
        raise errand.failure(kind, said)
