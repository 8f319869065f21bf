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


class Stock:
    """The engines that were asked what they have. They stay open, so that who works with them finds them so."""

    def __init__(self, worker_id: str, open_engine: Callable[[str, EngineOptions], Engine]) -> None:
        self._worker_id = worker_id
        self._open_engine = open_engine
        self._opened: dict[str, Engine] = {}

    def lacking(self, needs: Iterable[Need]) -> tuple[list[str], bool]:
        """Return what is lacking, one reason each, and whether an engine cannot be asked (no fault of a plan)."""
        reasons: dict[str, None] = {}
        unusable = False
        by_engine: dict[str, list[Need]] = {}
        for need in needs:
            by_engine.setdefault(need.engine, []).append(need)
        for name, wanted in by_engine.items():
            try:
                engine = self._engine(name)
                for need in wanted:
                    said = engine.missing(need.settings)
                    reasons |= dict.fromkeys(f"engine {name}: {reason}" for reason in said)
            except WeighbridgeError as error:
                unusable = True
                prefix = "" if isinstance(error, EngineUnavailable) else f"engine {name}: "
                reasons[f"{prefix}{error}"] = None
            except Exception as error:  # an engine may be anybody's; the master must get its answer all the same
                log.exception("engine %s cannot say what it has", name)
                unusable = True
                reasons[f"engine {name}: {type(error).__name__}: {error}"] = None
        return list(reasons), unusable

    def close(self) -> None:
        """Let go of the engines."""
        opened, self._opened = self._opened, {}
        for engine in opened.values():
            engine.close()

    def _engine(self, name: str) -> Engine:
        if name not in self._opened:
            options = EngineOptions("", self._worker_id, slots=1, timeout_s=TIMEOUT_S)
            self._opened[name] = self._open_engine(name, options)
        return self._opened[name]
