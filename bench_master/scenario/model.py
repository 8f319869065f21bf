"""A scenario that was loaded: complete, checked, and nothing left to decide but the order of its trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import OverheadSampling, Treatment

Order = Literal["interleaved", "blocked", "as-written"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What to run, where, how often, in which order.

    `path` is where it was read and `text` what stood there; `document` is the same as plain JSON-able data after
    every override, and loads to an equal scenario. `repeats` and `warmup` are trials of each treatment, by its index;
    `seed` is None where the author left it open. `notes` are for the user to read. `dialect` names the tool whose
    file it was, where that is another one; `lost` are those of the notes that say what was not carried over of it.
    `profiles` are the scales that it knows besides ``full``, `scale` is the one that it was loaded at. `published`
    are figures of others, as `bench_master.scenario.published` reads them.
    """

    name: str
    description: str
    path: str
    text: str
    document: Mapping[str, Any]
    treatments: tuple[Treatment, ...]
    repeats: tuple[int, ...]
    warmup: tuple[int, ...]
    order: Order
    seed: int | None
    sampling_interval_s: float
    thresholds: tuple[str, ...]
    notes: tuple[str, ...] = ()
    overhead: OverheadSampling | None = None
    host_ceiling: bool = False
    dialect: str = ""
    lost: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    scale: str = "full"
    published: Mapping[str, Any] | None = None
