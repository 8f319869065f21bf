"""The JSON report: the document itself, for programs."""

from __future__ import annotations

import json
import math
from typing import Any, ClassVar, TextIO

from bench_master.reports import ReportSource


class JsonReport:
    """Writes the document as indented JSON; what has no value is null, never NaN or an infinity."""

    name: ClassVar[str] = "json"

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write one JSON object."""
        json.dump(finite(source.document), out, indent=2, ensure_ascii=False, allow_nan=False)
        out.write("\n")


def finite(value: Any) -> Any:
    """Return plain values with every NaN and infinity, which JSON has no word for, turned into None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
