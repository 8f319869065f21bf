"""Finds the file that a scenario is named by, and reads its text."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench_common.errors import ScenarioError, UsageError, did_you_mean
from bench_master.scenario.tree import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

MAX_BYTES: Final = 1024**2
_SUFFIX: Final = ".yaml"


@dataclass(frozen=True, slots=True)
class Source:
    """A scenario's text, and the name by which its problems call it."""

    path: str
    text: str


def shipped_scenarios() -> dict[str, Traversable]:
    """Return the ready-made scenarios by name, such as ``quickstart`` or ``study/sweep``."""
    return dict(sorted(_under(files("scenarios"), "")))


def _under(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.name.startswith(("_", ".")):
            yield from _under(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield prefix + entry.name.removesuffix(_SUFFIX), entry


def read_source(reference: str) -> Source:
    """Return the text of a file, or of the ready-made scenario of that name.

    Raises `UsageError` where there is no such thing, and `ScenarioError` where it is no text.
    """
    if not reference:
        raise UsageError("'': expected a scenario's file or a ready-made one's name, and it is empty")
    path = Path(reference)
    shipped = shipped_scenarios()
    if path.exists() and not path.is_dir():
        try:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise UsageError(f"{reference}: {error.strerror}: the scenario cannot be read") from error
        return Source(reference, _text(reference, content))
    if reference in shipped:
        found = shipped[reference]
        return Source(str(found), _text(str(found), found.read_bytes()))
    if path.is_dir():
        raise UsageError(f"{reference}: a directory; name one scenario file in it, or a ready-made scenario")
    neighbours = [str(each) for each in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
    name = reference.removeprefix("scenarios/").removesuffix(_SUFFIX)
    hint = did_you_mean(reference, neighbours) or did_you_mean(name, shipped)
    raise UsageError(
        f"{reference}: there is no such file, and no ready-made scenario of that name{hint}; see list-scenarios"
    )


def _text(path: str, content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise ScenarioError([Place(path, 1, 1).problem(f"larger than {MAX_BYTES} bytes: this is no scenario")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        message = f"byte 0x{content[error.start]:02x} is not UTF-8: save the file as UTF-8"
        raise ScenarioError([Place(path, line, column).problem(message)]) from error
