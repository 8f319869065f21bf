"""A series of pairs: what is run, in which order, and how far it is. It is kept as a file in the series' folder.

Which side of a pair is first is drawn anew for each pair, from the seed and the pair's number alone. Under equal
builds the difference of each pair may then as well have the other sign, whatever the machine does over time: that is
all that the signed rank test asks for (Fisher, The Design of Experiments, 1935). A pair that was cut is made again as
a whole, in the same order.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from bench_common.errors import UsageError
from bench_common.files import write_whole

Side = Literal["old", "new"]
ORDERS: Final[tuple[tuple[Side, Side], ...]] = (("new", "old"), ("old", "new"))

FILE: Final = "alternate.json"
CUT: Final = "cut"
"""The folder of the files of pairs that were cut: they count nowhere."""


class Series(Struct, frozen=True, kw_only=True):
    """What a series is, and which of its runs are made."""

    format: Literal["weighbridge-alternate"] = "weighbridge-alternate"
    command: tuple[str, ...]
    """The words of the sub-command that makes one run."""
    old: str
    """The shell command that puts the old build in place."""
    new: str
    seed: int
    """Draws which side of a pair is first."""
    pairs: int = field()
    """How many pairs; the most of them, where it goes on until its verdict."""
    until_verdict: bool = False
    """Whether it ends when each comparison is settled."""
    budget_s: float | None = None
    """No pair begins after so much time of running, in seconds."""
    margin: float | None = None
    """Smaller differences are *same*, as a share."""
    runs: tuple[float, ...] = ()
    """How long each complete run took, with what set it up, in seconds and in their order."""

    @property
    def complete_pairs(self) -> int:
        """How many pairs have both of their runs."""
        return len(self.runs) // 2

    @property
    def is_over(self) -> bool:
        """Whether no further pair begins, whatever the verdict."""
        cut_off = self.budget_s is not None and sum(self.runs) >= self.budget_s
        return self.complete_pairs >= self.pairs or (cut_off and not len(self.runs) % 2)

    def order(self, pair: int) -> tuple[Side, Side]:
        """Return the sides of a pair, from 1, in the order in which they run."""
        return ORDERS[random.Random(f"{self.seed}:{pair}").random() >= 0.5]  # noqa: PLR2004, S311  a coin, no secret

    def next_run(self) -> tuple[int, Side]:
        """Return pair and side of the next run."""
        pair = self.complete_pairs + 1
        return pair, self.order(pair)[len(self.runs) % 2]

    def with_run(self, seconds: float) -> Series:
        """Return the series with its next run made."""
        return replace(self, runs=(*self.runs, seconds))

    def whole(self) -> Series:
        """Return the series without the run of a pair that was cut."""
        return replace(self, runs=self.runs[: 2 * self.complete_pairs])


def run_file(folder: Path, pair: int, side: Side) -> Path:
    """Return the stats file of a run; its name is as long for both sides."""
    return folder / f"{pair:02}-{side}.stats.gz"


def files_of(series: Series, folder: Path, side: Side) -> list[Path]:
    """Return the files of one side's runs in complete pairs, in order."""
    return [run_file(folder, pair, side) for pair in range(1, series.complete_pairs + 1)]


def load(folder: Path) -> Series | None:
    """Return the series of a folder; None if it has none. Raises `UsageError` for one that cannot be read."""
    path = folder / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Series)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, OSError) as error:
        raise UsageError(f"{path}: is no series of runs: {error}; name another folder") from error


def save(series: Series, folder: Path) -> None:
    """Write the series: a kill leaves the one before, or this one."""
    write_whole(folder / FILE, msgspec.json.format(msgspec.json.encode(series), indent=2) + b"\n")


def set_aside(series: Series, folder: Path) -> list[Path]:
    """Move the files of a pair that was cut, and return them; they count nowhere."""
    pair = series.complete_pairs + 1
    found = [path for side in ("old", "new") for path in sorted(folder.glob(f"{pair:02}-{side}.*"))]
    moved = []
    for path in found:
        (folder / CUT).mkdir(exist_ok=True)
        taken = sum(1 for _ in (folder / CUT).glob(f"*-{path.name}"))
        moved.append(path.rename(folder / CUT / f"{taken + 1}-{path.name}"))
    return moved
