"""What a check of the doctor says: a finding, how grave it is, and what to do about it."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, ClassVar

from bench_worker.doctor.scene import Scene


class Level(StrEnum):
    """How grave a finding is."""

    OK = "ok"
    """As it should be."""
    NOTE = "note"
    """Worth knowing when the numbers are read; nothing to repair."""
    WARNING = "warning"
    """Results will be noisier, or comparable to fewer others, than they could be."""
    PROBLEM = "problem"
    """This machine cannot measure until it is repaired."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. `advice` is what to do; `value` the number or word that the finding is made from."""

    check: str
    level: Level
    finding: str
    advice: str = ""
    value: str | int | float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


class Check(abc.ABC):
    """Looks at one thing of a scene and gives at least one finding; `name` is what the thing is called."""

    name: ClassVar[str]

    @abc.abstractmethod
    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield what was found; touch nothing but `scene`."""

    def ok(self, finding: str, value: str | float | None = None) -> Finding:
        """Return a finding that all is well."""
        return Finding(self.name, Level.OK, finding, "", value)

    def note(self, finding: str, advice: str, value: str | float | None = None) -> Finding:
        """Return a finding that is worth knowing."""
        return Finding(self.name, Level.NOTE, finding, advice, value)

    def warning(self, finding: str, advice: str, value: str | float | None = None) -> Finding:
        """Return a finding that makes results worse."""
        return Finding(self.name, Level.WARNING, finding, advice, value)

    def problem(self, finding: str, advice: str, value: str | float | None = None) -> Finding:
        """Return a finding that makes measuring impossible."""
        return Finding(self.name, Level.PROBLEM, finding, advice, value)
