"""Which labels of engines a command knows: of its command line, of the workers it starts, of a run that goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench_common.engine_traits import EngineLabel, parse_engine_label, use_engine_labels
from bench_common.errors import UsageError
from bench_master.run_extension import run_extensions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench_master.options.run import RunOptions


def settle_engine_labels(options: RunOptions, stored: Iterable[str] = ()) -> None:
    """Let the command's labels be names of engines: those given, those of workers, and the `stored` ones of a run.

    The places of the workers' labels are their hosts' own: here only the engines count. Raises `UsageError` for a
    label that is two engines.
    """
    given = options.workers.engine
    # An inventory is read with them.
    use_engine_labels(given)
    others = [("the stats file", parse_engine_label(text)) for text in stored]
    for extension in run_extensions().values():
        others += extension.engine_labels(options)
    use_labels_of(given, others)


def use_labels_of(given: Iterable[EngineLabel], others: Iterable[tuple[str, EngineLabel]]) -> None:
    """Let these labels be names of engines: those given, and the `others`, each with whose it is.

    Raises `UsageError` for a label that is two engines.
    """
    found = {label.label: label for label in given}
    for where, label in others:
        known = found.setdefault(label.label, EngineLabel(label.label, label.kind))
        if known.kind != label.kind:
            raise UsageError(f"engine {label.label!r} is a {label.kind} for {where}, and a {known.kind} otherwise")
    use_engine_labels(found.values())
