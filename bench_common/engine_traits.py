"""What every program knows of an engine without importing it: its name and its traits, both from entry points.

An engine is an entry point of the group ``weighbridge.engines``. One that differs from an ordinary container engine
(it has no images, say) registers an `EngineTraits` under the same name in the group ``weighbridge.engine_traits``,
from a module that is cheap to import: the master reads it, and an engine's own module may need half of a second.

An engine can be used several times on a host, each time under a label of its own with another program or socket
(``--engine new=crun:/opt/crun/bin/crun``). A label is a name of an engine like any other, and has the traits of the
engine that it stands for; `use_engine_labels` says which labels there are in this process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from bench_common import load_entry, registered
from bench_common.argument_types import NAME_PATTERN, InvalidValue
from bench_common.cost import CostSource
from bench_common.errors import UsageError, did_you_mean

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
    place: Literal["", "program", "address", "either"] = ""
    """What a label of it names: a program, the address of its socket, or nothing where it can have no label."""
    hue: str = ""
    """Its colour in charts, for ever: a name of `bench_master.reports.palette.HUES`; empty for a spare one."""

    cost: CostSource = ""
    """From where a job's cost is known (`bench_common.cost`); empty: nobody tells it."""

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


class EngineLabel(Struct, frozen=True):
    """A further use of an engine on a host, as ``--engine`` gives it: its text is ``LABEL=ENGINE[:PLACE]``."""

    label: str
    """The name that scenarios have for it."""
    kind: str
    """The engine that it is, by its registered name."""
    place: str = ""
    """Its program or the address of its socket; empty where the worker alone knows it."""

    def __str__(self) -> str:
        return f"{self.label}={self.kind}" + (f":{self.place}" if self.place else "")


_PLACES: Final = {"program": "the absolute path of a program", "address": "unix:///PATH or tcp://HOST:PORT"}
_PATTERNS: Final = {"program": re.compile(r"/.+"), "address": re.compile(r"unix:///.+|tcp://.+")}
_labels: dict[str, EngineLabel] = {}


def parse_engine_label(text: str) -> EngineLabel:
    """Return a label from its text. Raises `InvalidValue` with what was expected."""
    label, equals, rest = text.partition("=")
    kind, colon, place = rest.partition(":")
    if not equals or re.fullmatch(NAME_PATTERN, label) is None:
        raise InvalidValue(
            f"{text!r}: expected LABEL=ENGINE:PROGRAM or LABEL=ENGINE:ADDRESS, such as new=crun:/opt/crun/bin/crun; "
            "a label is a word of letters, digits and _ . + -"
        )
    names = _installed_names()
    if label in names:
        raise InvalidValue(f"{text!r}: {label} is an engine itself; choose another label")
    if kind not in names:
        hint = did_you_mean(kind, names)
        raise InvalidValue(f"{text!r}: unknown engine {kind!r}{hint}; one of: {', '.join(names)}")
    takes = _registered_traits().get(kind, EngineTraits()).place
    if not takes:
        raise InvalidValue(f"{text!r}: engine {kind} has neither a program nor a socket that a label could name")
    wanted = " or ".join(text for word, text in _PLACES.items() if takes in (word, "either"))
    if colon and not any(_PATTERNS[word].fullmatch(place) for word in _PLACES if takes in (word, "either")):
        raise InvalidValue(f"{text!r}: expected {wanted} after '{kind}:'")
    return EngineLabel(label, kind, place)


def parse_engine(text: str) -> EngineLabel:
    """Return the label of a text, or an engine by its name: a label that stands for itself.

    Raises `InvalidValue` with what was expected.
    """
    if "=" in text:
        return parse_engine_label(text)
    if text not in _installed_names():
        hint = did_you_mean(text, _installed_names())
        raise InvalidValue(
            f"{text!r}: expected an engine{hint or ', as list engines shows them'}, or LABEL=ENGINE:PLACE"
        )
    return EngineLabel(text, text)


def use_engine_labels(labels: Iterable[EngineLabel]) -> None:
    """Let these labels, and no others, be names of engines in this process. Raises `UsageError` for two of a name."""
    known: dict[str, EngineLabel] = {}
    for one in labels:
        if known.setdefault(one.label, one) != one:
            raise UsageError(f"--engine {one}: the label {one.label!r} is given twice, first as {known[one.label]}")
    _labels.clear()
    _labels.update(known)


def engine_labels() -> tuple[EngineLabel, ...]:
    """Return the labels of this process, in their order."""
    return tuple(_labels.values())


def engine_kind(name: str) -> str:
    """Return the registered name of an engine, which may be given by its label."""
    label = _labels.get(name)
    return name if label is None else label.kind


def engine_names() -> tuple[str, ...]:
    """Return the sorted names of all installed engines and of the labels, without loading any."""
    return tuple(sorted({*_installed_names(), *_labels}))


def engine_traits(name: str) -> EngineTraits:
    """Return the traits that an engine registers; those of an ordinary engine where it registers none.

    A label has those of its engine, but for what only one engine can have: its colour, and the role of a default.
    """
    traits = _registered_traits().get(engine_kind(name), EngineTraits())
    return replace(traits, hue="", is_default=False, is_baseline=False) if name in _labels else traits


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


def _installed_names() -> tuple[str, ...]:
    return tuple(sorted({entry.name for entry in registered(ENGINES_GROUP)}))


@cache
def _registered_traits() -> dict[str, EngineTraits]:
    installed = set(_installed_names())
    points = sorted(registered(TRAITS_GROUP), key=lambda point: point.name)
    return {point.name: _load(point) for point in points if point.name in installed}


def _load(point: EntryPoint) -> EngineTraits:
    try:
        loaded = load_entry(point)
    except Exception:  # noqa: BLE001  a broken package must not stop the others; its engine is reported as broken
        return EngineTraits()
    return loaded if isinstance(loaded, EngineTraits) else EngineTraits()
