"""The measured trials of a run on the time axis, and which readings of its hosts fall into them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Span:
    """A measured trial: its treatment, when it began and ended (ns, the master's clock), and which workers ran it."""

    treatment: int
    begin_ns: int
    end_ns: int
    workers: frozenset[int]


class Spans:
    """Measured trials, which do not overlap. What is read on the host of a worker belongs to trials that it ran."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans = sorted(spans, key=lambda span: span.begin_ns)
        self._begins = np.array([span.begin_ns for span in self._spans], np.int64)
        self._ends = np.array([span.end_ns for span in self._spans], np.int64)

    def __len__(self) -> int:
        return len(self._spans)

    def holding(
        self, worker: int, begins: npt.NDArray[Any], ends: npt.NDArray[Any]
    ) -> Iterator[tuple[Span, npt.NDArray[np.bool_]]]:
        """Yield the trials that hold some of a worker's intervals (ns) from begin to end, and which ones."""
        if not self._spans:
            return
        places = np.searchsorted(self._begins, begins, side="right") - 1
        whole = (places >= 0) & (ends <= self._ends[places])
        for place in np.unique(places[whole]).tolist():
            if worker in self._spans[place].workers:
                yield self._spans[place], whole & (places == place)

    def touching(self, worker: int, begin_ns: int, end_ns: int) -> Iterator[Span]:
        """Yield the trials that overlap with an interval of a worker."""
        first = int(np.searchsorted(self._ends, begin_ns, side="right"))
        last = int(np.searchsorted(self._begins, end_ns, side="left"))
        yield from (span for span in self._spans[first:last] if worker in span.workers)
