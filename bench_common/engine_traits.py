"""What every program knows of an engine without importing it: its name and its traits, both from entry points.

An engine is an entry point of the group ``weighbridge.engines``. One that differs from an ordinary container engine
(it has no images, say) registers an `EngineTraits` under the same name in the group ``weighbridge.engine_traits``,
from a module that is cheap to import: the master reads it, and an engine's own module may need half of a second.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint
from typing import Final

from msgspec import Struct

from bench_common import registered
from bench_common.errors import UsageError

ENGINES_GROUP: Final = "weighbridge.engines"
TRAITS_GROUP: Final = "weighbridge.engine_traits"


class EngineTraits(Struct, frozen=True):
    """The nature of an engine; the defaults are those of an ordinary container engine."""

    inapplicable: frozenset[str] = frozenset()
    """Container settings that have no meaning for it and are ignored, such as the image of a plain process."""
    runs_on_host: bool = False
    """Its jobs are programs of the host itself, in no container: a worker must allow that (``--allow-native``)."""
    is_default: bool = False
    """A job that names no engine runs under this one. Exactly one installed engine is the default."""
    is_baseline: bool = False
    """It runs plain processes, so the host's ceiling is measured with it. At most one installed engine is it."""
    hue: str = ""
    """Its colour in figures, for ever: a name of `bench_master.figures.palette.HUES`; empty for a spare one."""

    @property
    def has_images(self) -> bool:
        """Whether a container is made from an image, which says what runs where no command does."""
        return "image" not in self.inapplicable

    @property
    def has_networks(self) -> bool:
        """Whether a container can have a network other than the host's."""
        return "network" not in self.inapplicable

    @property
    def has_init(self) -> bool:
        """Whether a container's command is process 1 of its own, so that an init before it makes a difference."""
        return "init" not in self.inapplicable


def engine_names() -> tuple[str, ...]:
    """Return the sorted names of all installed engines, without loading any."""
    return tuple(sorted({entry.name for entry in registered(ENGINES_GROUP)}))


def engine_traits(name: str) -> EngineTraits:
    """Return the traits that an engine registers; those of an ordinary engine where it registers none."""
    return _registered_traits().get(name, EngineTraits())


def default_engine() -> str:
    """Return the engine of jobs that name none. Raises `UsageError` unless exactly one engine is the default."""
    return _only([name for name, traits in _registered_traits().items() if traits.is_default], "the default engine")


def baseline_engine() -> str:
    """Return the engine that measures the host's ceiling. Raises `UsageError` unless exactly one can."""
    return _only([name for name, traits in _registered_traits().items() if traits.is_baseline], "the baseline engine")


def _only(names: list[str], role: str) -> str:
    if len(names) == 1:
        return names[0]
    if names:
        raise UsageError(f"several installed engines are {role}: {', '.join(names)}; uninstall all but one")
    raise UsageError(f"no installed engine is {role}; reinstall weighbridge")


@cache
def _registered_traits() -> dict[str, EngineTraits]:
    installed = set(engine_names())
    points = sorted(registered(TRAITS_GROUP), key=lambda point: point.name)
    return {point.name: _load(point) for point in points if point.name in installed}


def _load(point: EntryPoint) -> EngineTraits:
    try:
        loaded = point.load()
    except Exception:  # noqa: BLE001  a broken package must not stop the others; its engine is reported as broken
        return EngineTraits()
    return loaded if isinstance(loaded, EngineTraits) else EngineTraits()
