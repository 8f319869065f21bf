"""The engines that run an OCI runtime: `runc`, `crun`, `youki`, `runsc`."""

from __future__ import annotations

from typing import Final

from bench_common.engine_traits import EngineTraits

_NO_LOGS: Final = frozenset({"log_driver", "log_options"})

RUNC: Final = EngineTraits(inapplicable=_NO_LOGS, place="program", hue="ochre", cost="cgroup")
CRUN: Final = EngineTraits(inapplicable=_NO_LOGS, place="program", hue="rose", cost="cgroup")
YOUKI: Final = EngineTraits(inapplicable=_NO_LOGS, place="program", hue="olive", cost="cgroup")
RUNSC: Final = EngineTraits(inapplicable=_NO_LOGS, place="program", hue="indigo", cost="cgroup")
