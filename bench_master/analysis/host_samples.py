"""Mean and extremes of readings, kept while they stream by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(slots=True)
class Extent:
    """Mean and extremes of a column; NaN (nothing could be read) is left out."""

    unit: str
    n: int = 0
    total: float = 0.0
    low: float = float("inf")
    high: float = float("-inf")

    def add(self, values: npt.NDArray[Any]) -> None:
        """Take readings in."""
        finite = values[np.isfinite(values)]
        if len(finite):
            self.n += len(finite)
            self.total += float(finite.sum())
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))

    def document(self) -> dict[str, Any]:
        """Return the figures; there must be a reading."""
        return {"unit": self.unit, "n": self.n, "mean": self.total / self.n, "min": self.low, "max": self.high}
