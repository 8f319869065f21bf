"""`bench-master archive tag` and `note`: what people say about a run."""

from __future__ import annotations

import argparse
import re
from typing import Final

from msgspec import Struct

from bench_common.argument_types import InvalidValue
from bench_common.errors import ExitCode, UsageError, did_you_mean
from bench_common.safe_text import one_line
from bench_common.streams import tell
from bench_features.archive.annotations import MAX_VALUE_CHARS
from bench_features.archive.archive import Archive
from bench_features.archive.options import SubCommand, add_archive_option
from bench_features.archive.queries import MIN_PREFIX
from bench_features.archive.types import RunRow

_WORD: Final = re.compile(r"[^\s,\x00-\x1f\x7f]{1,64}")


def tag_word(text: str) -> str:
    """Return a tag or a name: a type of arguments."""
    if _WORD.fullmatch(text) is None or not text.isprintable():
        raise InvalidValue(f"{text!r}: expected a word of at most 64 characters, without spaces and commas")
    return text


class TagOptions(Struct, frozen=True):
    """The command line of `archive tag`."""

    run: str
    """The run's id or name."""
    tags: tuple[str, ...]
    """The tags to add."""
    remove: tuple[str, ...] = ()
    """The tags to remove."""
    name: str | None = None
    """The name to give."""
    baseline: bool = False
    """Whether to mark it as a baseline."""
    quiet: bool = False
    """Print errors only."""
    archive: str | None = None
    """Where the archive is; None for the default."""


def _is_of(name: str, run: RunRow) -> bool:
    """Whether a word names a run by one of its ids."""
    ids = (run.sha256, run.run_id or "")
    return len(name) >= MIN_PREFIX and any(one.startswith(name.lower()) for one in ids)


def _configure_tag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="beginning of the run's id, or its name")
    parser.add_argument("tags", nargs="*", type=tag_word, metavar="TAG", help="tag to add, such as release-2.1")
    parser.add_argument("--remove", action="append", default=[], metavar="TAG", help="tag to remove; repeatable")
    parser.add_argument("--name", type=tag_word, metavar="NAME", help="name that stands for the run's id from now on")
    parser.add_argument(
        "--baseline", action="store_true", help="mark it as a baseline, which prune --keep-tagged keeps"
    )
    add_archive_option(parser)


def _run_tag(options: TagOptions) -> int:
    if not (options.tags or options.remove or options.name or options.baseline):
        raise UsageError(
            "archive tag: says nothing about the run; give a TAG, --remove TAG, --name NAME or --baseline"
        )
    with Archive.open(options.archive) as archive:
        row = archive.run(options.run).row
        for tag in options.remove:
            if tag not in row.tags:
                hint = did_you_mean(tag, row.tags) or f"; it has {', '.join(row.tags) or 'no tags'}"
                raise UsageError(f"--remove {one_line(tag)}: run {row.id} has no such tag{hint}")
        if options.name is not None:
            alike = next((run.id for run in archive.runs() if _is_of(options.name, run)), None)
            if alike is not None:
                raise UsageError(f"--name {options.name}: is the beginning of the id of run {alike}; choose another")
            other = [run.id for run in archive.runs() if run.name == options.name and run.sha256 != row.sha256]
            if other:
                raise UsageError(f"--name {options.name}: run {other[0]} has this name; choose another")
        entries = [("untag", tag) for tag in options.remove]
        entries += [("tag", tag) for tag in options.tags if tag not in row.tags]
        entries += [("name", options.name)] if options.name else []
        entries += [("baseline", "yes")] if options.baseline else []
        archive.annotate([(row.sha256, key, value) for key, value in entries])
        row = archive.run(row.sha256).row
    if not options.quiet:
        name = f", named {row.name}" if row.name else ""
        tell(f"{row.id}{name}: {', '.join(row.tags) or 'no tags'}")
    return int(ExitCode.OK)


class NoteOptions(Struct, frozen=True):
    """The command line of `archive note`."""

    run: str
    """The run's id or name."""
    text: tuple[str, ...]
    """The words of the note."""
    archive: str | None = None
    """Where the archive is; None for the default."""


def _configure_note(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="beginning of the run's id, or its name")
    parser.add_argument("text", nargs="+", metavar="TEXT", help="what to note, such as 'the fan was broken'")
    add_archive_option(parser)


def _run_note(options: NoteOptions) -> int:
    text = " ".join(options.text).strip()
    if not text or len(text) > MAX_VALUE_CHARS:
        raise UsageError(f"archive note: a text of 1 to {MAX_VALUE_CHARS} characters expected; this has {len(text)}")
    with Archive.open(options.archive) as archive:
        archive.annotate([(archive.find(options.run), "note", text)])
    return int(ExitCode.OK)


COMMANDS: Final = (
    SubCommand("tag", "tag or name a run; the list and prune know tags", TagOptions, _configure_tag, _run_tag),
    SubCommand("note", "note something about a run, which show prints", NoteOptions, _configure_note, _run_note),
)
