"""Answers what a master asks before a run: what its containers would lack on this host."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from bench_common.errors import EngineUnavailable, WeighbridgeError
from bench_worker.engines.base import EngineOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bench_common.needs import Need
    from bench_worker.engines.base import Engine

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 30.0
"""For each single question to an engine."""


def lacking(
    needs: Iterable[Need],
    worker_id: str,
    open_engine: Callable[[str, EngineOptions], Engine],
    opened: dict[str, Engine],
) -> tuple[list[str], bool]:
    """Return what is lacking, one reason each, and whether an engine cannot even be asked.

    The second is no fault of the plan. The engines that were asked are put into `opened`; the caller closes them.
    """
    reasons: dict[str, None] = {}
    unusable = False
    by_engine: dict[str, list[Need]] = {}
    for need in needs:
        by_engine.setdefault(need.engine, []).append(need)
    for name, wanted in by_engine.items():
        try:
            if name not in opened:
                opened[name] = open_engine(name, EngineOptions("", worker_id, slots=1, timeout_s=TIMEOUT_S))
            for need in wanted:
                said = opened[name].missing(need.settings)
                reasons |= dict.fromkeys(f"engine {name}: {reason}" for reason in said)
        except WeighbridgeError as error:
            unusable = True
            prefix = "" if isinstance(error, EngineUnavailable) else f"engine {name}: "
            reasons[f"{prefix}{error}"] = None
        except (
            Exception
        ) as error:  # an engine may be anybody's; its fault must not leave the master without an answer
            log.exception("engine %s cannot say what it has", name)
            unusable = True
            reasons[f"engine {name}: {type(error).__name__}: {error}"] = None
    return list(reasons), unusable
