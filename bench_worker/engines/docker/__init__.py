"""The engines that speak the Docker API, `docker` and `podman`, and `docker-cli`."""

from __future__ import annotations

from typing import Final

from bench_common.engine_traits import EngineTraits

TRAITS: Final = EngineTraits(is_default=True, hue="vermilion")
"""The traits of `docker`; the other two are ordinary engines."""
CLI: Final = EngineTraits(hue="brown")
PODMAN: Final = EngineTraits(hue="purple")
