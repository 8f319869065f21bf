"""The engine `cri`: the Kubernetes container runtime interface."""

from __future__ import annotations

from typing import Final

from bench_common.engine_traits import EngineTraits

TRAITS: Final = EngineTraits(
    inapplicable=frozenset({"log_driver", "log_options"}), place="address", hue="teal", cost="cgroup"
)
