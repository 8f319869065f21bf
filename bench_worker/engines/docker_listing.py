"""Lists the images of an engine with Docker's API."""

from __future__ import annotations

from typing import Any, Final

import docker
import docker.errors

_GONE: Final = "image not known"
"""What Podman says, with HTTP status 500, when somebody removes an image while it lists them."""
_ATTEMPTS: Final = 10


def listed(client: docker.APIClient, **which: Any) -> list[dict[str, Any]]:
    """Return the images, as docker-py's `images` does with the same words; raise `docker.errors.APIError`.

    An engine that stumbles over an image that has just gone is asked again.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return list(client.images(**which))
        except docker.errors.APIError as error:
            if _GONE not in str(error.explanation):
                raise
    return list(client.images(**which))
