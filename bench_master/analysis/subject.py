"""What a run ran, in a line: the command, its image, the operations and the hosts."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from bench_common.engine_traits import engine_traits
from bench_common.safe_text import one_line, shorten
from bench_common.stats.block_types import StoredTreatment, definition_of
from bench_master.formatting import plural

_COMMAND_CHARS: Final = 40
"""How much of a command is shown."""
_MOST_JOBS: Final = 3
"""Jobs, or commands, that are named; of more there is their number."""


def describe_subject(treatments: Iterable[StoredTreatment], hosts: Sequence[str]) -> str:
    """Return what the treatments ran and where: ```true` in alpine, from create to remove, on host blade-1``.

    What differs between treatments (an image) is left out, but for a few commands; of several jobs each is named.
    Empty where nobody knows what was run.
    """
    jobs: dict[str, list[StoredTreatment]] = {}
    for treatment in treatments:
        label = treatment.labels.get("job")
        try:
            definition_of(treatment)
        except ValueError:
            return ""
        jobs.setdefault("" if label is None else str(label), []).append(treatment)
    if len(jobs) > _MOST_JOBS:
        what = plural(len(jobs), "job")
    elif len(jobs) > 1:
        what = ", ".join(_named(label, known) for label, known in jobs.items())
    else:
        what = _whole(next(iter(jobs.values()), []))
    return one_line(f"{what}{_places(hosts)}") if what else ""


def _named(label: str, treatments: Sequence[StoredTreatment]) -> str:
    work = _kind_of_work(treatments)
    what = _commands(treatments) if work == _OWN_COMMAND else work
    return f"{label} ({what})" if what and what != label else label


def _places(hosts: Sequence[str]) -> str:
    names = list(dict.fromkeys(hosts))
    if not names:
        return ""
    return f", on host {names[0]}" if len(names) == 1 else f", on {len(names)} hosts"


def _whole(treatments: Sequence[StoredTreatment]) -> str:
    """Return what the treatments of one job have in common."""
    command = _same(map(_command, treatments))
    image = _same(
        (treatment.container or {}).get("image")
        for treatment in treatments
        if engine_traits(treatment.engine).has_images
    )
    work = _kind_of_work(treatments)
    words = f"`{_command_text(command)}`" if command else _commands(treatments)
    work = "" if work == _OWN_COMMAND else work
    if words and image:
        words = f"{words} in {image}"
    elif image and " to " in work:
        words = str(image)
    joined = f", {'from ' if ' to ' in work else ''}" if words and work else ""
    return f"{words}{joined}{work}"


def _commands(treatments: Sequence[StoredTreatment]) -> str:
    """Return the commands that are compared, with their names; their number where they are many."""
    named: dict[str, str] = {}
    for treatment in treatments:
        if command := _command(treatment):
            label = str(treatment.labels.get("command") or "")
            text = _command_text(command)
            named[repr(command)] = f"`{text}`" + (f" ({label})" if label not in ("", text) else "")
    if not named:
        return ""
    return ", ".join(named.values()) if len(named) <= _MOST_JOBS else plural(len(named), "command")


_OWN_COMMAND: Final = "command"
"""The workload whose name says less than the command that it runs."""


def _kind_of_work(treatments: Sequence[StoredTreatment]) -> str:
    """Return the workload, the first and the last operation, or the kind of the job; empty if treatments differ."""
    found = _same(_work(treatment.job or {}) for treatment in treatments)
    return str(found or "")


def _work(job: Mapping[str, Any]) -> str:
    if job.get("workload"):
        return str(job["workload"])
    names = [str(operation.get("name")) for operation in job.get("operations") or ()]
    if not names:
        return str(job.get("kind") or "")
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _command(treatment: StoredTreatment) -> Any:
    own = (treatment.job or {}).get("own") or {}
    return (treatment.container or {}).get("command") or own.get("command")


def _same(values: Iterable[Any]) -> Any:
    """Return what all values are; None if they differ."""
    known = list(values)
    return known[0] if known and all(value == known[0] for value in known) else None


WITH_INPUT: Final = 'exec "$0" "$@" < '
"""How the script of a shell begins that gives a command its input, and becomes it."""


def _command_text(command: Any) -> str:
    words = [command] if isinstance(command, str) else list(map(str, command))
    text = command if isinstance(command, str) else shlex.join(words)
    if words[:2] == ["sh", "-c"] and "".join(words[2:3]).startswith(WITH_INPUT):
        text = f"{shlex.join(words[3:])} < {words[2].removeprefix(WITH_INPUT)}"
    return shorten(one_line(text), _COMMAND_CHARS)
