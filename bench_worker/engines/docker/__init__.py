"""The engines that speak the Docker API, `docker` and `podman`, and `docker-cli`."""

from __future__ import annotations

from typing import Final

from bench_common.engine_traits import EngineTraits

TRAITS: Final = EngineTraits(is_default=True)
"""The traits of `docker`; `docker-cli` and `podman` are ordinary engines."""
