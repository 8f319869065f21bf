"""The engines that speak the Docker API, `docker` and `podman`, and `docker-cli`."""

from __future__ import annotations

from typing import Final

from bench_common.engine_traits import EngineTraits

TRAITS: Final = EngineTraits(is_default=True, place="address", hue="vermilion", cost="cgroup")
"""The traits of `docker`; the other two are ordinary engines."""
CLI: Final = EngineTraits(place="address", hue="brown", cost="cgroup")
PODMAN: Final = EngineTraits(place="either", hue="purple", cost="cgroup")
