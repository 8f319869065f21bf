"""The engine `native`: plain processes."""

from __future__ import annotations

from typing import Final

from bench_common.engine_traits import EngineTraits

TRAITS: Final = EngineTraits(
    inapplicable=frozenset(
        {"image", "rootfs", "network", "log_driver", "log_options", "init", "storage", "runtime"}
        | {"snapshotter", "gvisor_platform"}
    ),
    is_baseline=True,
    runs_on_host=True,
    hue="blue",
    cost="processes",
)
