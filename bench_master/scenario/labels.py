"""What a treatment is called: the shortest clear name of each key that varies, and a short word for each value."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench_common.treatment import Scalar
    from bench_master.scenario.types import Shape

RESERVED: Final = frozenset({"environment", "engine", "job"})


def label_names(keys: Iterable[str]) -> dict[str, str]:
    """Return the shortest clear name of each dotted key: ``memory`` for ``container.memory`` if nothing clashes."""
    distinct = list(dict.fromkeys(keys))
    short = {key: _tail(key) for key in distinct}
    clashes = Counter(short.values())
    return {key: key if clashes[name] > 1 or name in RESERVED else name for key, name in short.items()}


def _tail(key: str) -> str:
    if key.startswith("services."):
        key = f"container.{key.split('.', 2)[2]}"
    for prefix in ("container.env.", "container.files.", "container.log_options.", "container.", "params."):
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return key


class ValueLabels:
    """Gives every value of a key its label, and different values different ones."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, Scalar], list[Any]] = {}

    def label(self, key: str, shape: Shape, value: Any) -> Scalar:
        """Return the label of `value`; where another value has it already, with a number: ``sh -c...#2``."""
        plain = shape.label(value)
        same_label = self._values.setdefault((key, plain), [])
        if value not in same_label:
            same_label.append(value)
        position = same_label.index(value)
        return plain if position == 0 else f"{plain}#{position + 1}"
