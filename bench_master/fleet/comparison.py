"""Hosts side by side: which of their properties differ, so that a difference in results may be theirs.

Pure: what every host told of itself goes in, differences come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

SAME: Final = 0.02
"""Numbers of bytes or Hz this near to each other are the same, as a share."""
OF_THE_ENVIRONMENT: Final = frozenset({"hypervisor", "container"})
"""What environments differ in by definition: no confound between them."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one host told: facts by name, each as a number or text and as a person reads it, engines, findings.

    `engines` are those that can be used, with their versions; `unusable` says of the others why not.
    """

    host: str
    environment: str
    facts: Mapping[str, Any]
    shown: Mapping[str, str] = field(default_factory=dict)
    identity: frozenset[str] = frozenset()
    engines: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[Mapping[str, Any]] = ()
    unusable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """A property that is not the same everywhere: the hosts by value; `within` are environments that it divides.

    `partial`: an engine that can be used on some of the hosts only.
    """

    name: str
    values: Mapping[str, tuple[str, ...]]
    within: tuple[str, ...] = ()
    partial: bool = False

    @property
    def level(self) -> str:
        """How grave it is: ``note`` for what environments differ in by definition, else ``warning``."""
        return "note" if self.name in OF_THE_ENVIRONMENT and not self.within else "warning"

    @property
    def meaning(self) -> str:
        """What it does to a comparison."""
        if self.partial:
            return "not every host can use it: a run that wants it of all of them is refused"
        if self.within:
            return (
                f"the hosts of {' and of '.join(self.within)} are not alike: their trials differ for this reason, too"
            )
        if self.level == "note":
            return "it is what makes these environments"
        return "it goes with the environment: a difference between them may be due to this"


def differences(looks: Sequence[Look]) -> list[Difference]:
    """Return what differs between hosts, those within an environment first."""
    identity = frozenset[str]().union(*(look.identity for look in looks))
    found = []
    for name in dict.fromkeys(name for look in looks for name in look.facts):
        if name in identity:
            continue
        groups = _grouped([(look, look.facts.get(name), look.shown.get(name)) for look in looks])
        found += _difference(name, groups)
    for name in dict.fromkeys(name for look in looks for name in look.engines):
        told = [(look, look.engines.get(name), _unusable(look, name)) for look in looks]
        partial = any(version is None for _, version, _ in told)
        found += _difference(f"engine {name}", _grouped(told), partial=partial)
    return sorted(found, key=lambda difference: (not difference.within, difference.level != "warning"))


def _unusable(look: Look, name: str) -> str | None:
    """Return why an engine cannot be used on a host; None where it can."""
    if name in look.engines:
        return None
    reason = look.unusable.get(name)
    return f"cannot be used: {reason}" if reason else "cannot be used"


def _grouped(told: Sequence[tuple[Look, Any, str | None]]) -> list[tuple[str, list[Look]]]:
    """Return the hosts by value; values that are as good as the same are one."""
    groups: list[tuple[Any, str, list[Look]]] = []
    for look, value, shown in told:
        for other, _, members in groups:
            if _alike(value, other):
                members.append(look)
                break
        else:
            groups.append((value, "not told" if value is None and not shown else str(shown or value), [look]))
    return [(text, members) for _, text, members in groups]


def _alike(one: Any, other: Any) -> bool:
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (one, other))
    if numbers and max(abs(one), abs(other)) > 1e6:  # noqa: PLR2004  bytes and Hz, no small counts and settings
        return bool(abs(one - other) <= SAME * max(abs(one), abs(other)))
    return bool(one == other)


def _difference(name: str, groups: list[tuple[str, list[Look]]], *, partial: bool = False) -> list[Difference]:
    if len(groups) < 2:  # noqa: PLR2004  all alike
        return []
    values: dict[str, tuple[str, ...]] = {}
    for text, members in groups:
        values[text] = values.get(text, ()) + tuple(look.host for look in members)
    kinds = [{look.environment for look in members} for _, members in groups]
    within = sorted(kind for kind in set().union(*kinds) if sum(kind in each for each in kinds) > 1)
    return [Difference(name, values, tuple(within), partial)]
