"""Run the recipes of docs/cookbook.rst as they are written, and show what a terminal shows of each command first.

``script/cookbook`` calls this. The commands, and the files that they need, are those of the document: blocks of the
class ``runnable`` are the small runs, ``full`` the measurements, ``fleet`` needs hosts, and ``docker`` an engine. A
recipe fails, too, if the answer of a run is not within these first lines, whatever the run said above its report; in
a log, which keeps each line of progress, within the first lines of the report.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import terminal_recording
from docutils import nodes
from docutils.core import publish_doctree

COOKBOOK: Final = Path(__file__).resolve().parents[1] / "cookbook.rst"
LINES: Final = 15
_NUMBER: Final = re.compile(r"(\d+)\. ")


@dataclass(frozen=True)
class Block:
    """Commands that stand together, one a line, and the classes that the document gives them."""

    commands: tuple[str, ...]
    classes: frozenset[str]


@dataclass(frozen=True)
class Recipe:
    """A question of the cookbook with the commands that answer it."""

    number: int
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Wish:
    """What the command line asks for."""

    numbers: frozenset[int]
    measure: bool
    native: bool
    hosts: Path | None
    pipe: bool
    lines: int
    deadline_s: float


def recipes(document: Path = COOKBOOK) -> list[Recipe]:
    """Return the recipes in their order."""
    found = []
    for section in _tree(document).findall(nodes.section):
        title = section[0].astext()
        if match := _NUMBER.match(title):
            parts = section.findall(nodes.literal_block)
            blocks = [
                Block(tuple(_commands(part)), frozenset(part["classes"])) for part in parts if "sh" in part["classes"]
            ]
            found.append(Recipe(int(match[1]), title, tuple(blocks)))
    return found


def files(document: Path = COOKBOOK) -> dict[str, str]:
    """Return the files that the document says to write, by their names."""
    blocks = _tree(document).findall(nodes.literal_block)
    return {block["names"][0]: f"{block.astext()}\n" for block in blocks if block["names"]}


@cache
def _tree(document: Path) -> nodes.document:
    settings = {"report_level": 5, "syntax_highlight": "none", "file_insertion_enabled": False}
    return publish_doctree(document.read_text("utf-8"), source_path=str(document), settings_overrides=settings)


def _commands(block: nodes.Node) -> Iterator[str]:
    yield from filter(None, block.astext().splitlines())


def say(text: str = "") -> None:
    """Print a line at once: the next command may take minutes."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Engines:
    """Which engines can be used here; they are asked once, when the first command needs to know."""

    @cache  # noqa: B019  one object for the whole run
    def reasons(self) -> dict[str, str]:
        """Return why each engine cannot be used, by its name; empty for those that can."""
        argv = ["bench-master", "list", "engines", "--format", "json"]
        done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)  # noqa: S603
        return {one["name"]: "" if one["usable"] else one["reason"] for one in json.loads(done.stdout)}

    def without_missing(self, command: str) -> tuple[str, dict[str, str]]:
        """Return a ``weigh`` without the engines that cannot be used, and why; another command as it is."""
        if not command.startswith("bench-master weigh "):
            return command, {}
        before, dashes, after = command.partition(" -- ")
        missing = {word: why for word in before.split() if (why := self.reasons().get(word))}
        kept = " ".join(word for word in before.split() if word not in missing) if missing else before
        return f"{kept}{dashes}{after}", missing


def left_out(block: Block, wish: Wish, engines: Engines) -> str:
    """Return why a block cannot be run here; empty if it can."""
    if "docker" in block.classes and (why := engines.reasons()["docker"]):
        return f"docker cannot be used: {why}"
    if "fleet" in block.classes and wish.hosts is None:
        return "it needs hosts: script/testbed up, then --hosts /tmp/weighbridge-testbed"
    return ""


def is_asked_for(block: Block, wish: Wish) -> bool:
    """Whether a block is among those to run: the small runs first, and the measurements if they are asked for."""
    if "docker" in block.classes and wish.native:
        return False
    if "full" in block.classes:
        return wish.measure
    return bool(block.classes & {"runnable", "fleet"})


def run_recipe(recipe: Recipe, wish: Wish, engines: Engines) -> bool:
    """Run a recipe in a new folder with the files of the document; return whether all that ran ended well."""
    say(f"{recipe.title}\n{'=' * len(recipe.title)}")
    with tempfile.TemporaryDirectory(prefix="weighbridge-cookbook-") as name:
        folder = Path(name)
        for path, text in files().items():
            (folder / path).write_text(text, "utf-8")
        environment = {**os.environ, "PAGER": "cat"}
        if wish.hosts is not None:
            shutil.copy(wish.hosts / "hosts.yaml", folder)
            (folder / ".ssh").mkdir()
            shutil.copy(wish.hosts / "known_hosts", folder / ".ssh")
        for block in recipe.blocks:
            if not is_asked_for(block, wish):
                continue
            if why := left_out(block, wish, engines):
                say(f"skipped: {why}\n")
                continue
            home = {"HOME": name} if "fleet" in block.classes else {}
            for command in block.commands:
                if not run_command(command, {**environment, **home}, folder, wish, engines):
                    say("the recipe ends here\n")
                    return False
    return True


def run_command(command: str, environment: Mapping[str, str], folder: Path, wish: Wish, engines: Engines) -> bool:
    """Run one command and print it with the first lines of its screen; return whether it ended with exit code 0."""
    shown, missing = engines.without_missing(command)
    for engine, why in missing.items():
        say(f"without {engine}: {why}")
    say(f"$ {shown}")
    line = f"{{ {shown}\n}} 2>&1 | cat" if wish.pipe else shown
    ended = terminal_recording.run(line, environment, folder, wish.deadline_s)
    lines = ended.screen().splitlines()
    show(lines, wish.lines)
    if ended.status == 0:
        # A log keeps a line of progress every ten seconds: what a reader of it looks for is the report.
        read = lines[(report_begins(lines) or 1) - 1 :] if wish.pipe else lines
        below = answer_below(answer_of(shown, environment, folder), read, wish.lines)
        say(f"not within the first {wish.lines} lines: {below}\n" if below else "")
        return not below
    say("\n".join(lines[wish.lines :][-wish.lines :]))
    say(f"exit code {ended.status}" if ended.status is not None else f"not over in {wish.deadline_s:g} s")
    return False


def answer_of(command: str, environment: Mapping[str, str], folder: Path) -> list[str]:
    """Return the sentences that are the answer of a command that prints a report; nothing of any other."""
    words = command.split()
    stats = next((word for word in words if word.endswith(".stats.gz")), "")
    reports = words[:2] in [["bench-master", one] for one in ("run-scenario", "weigh", "report-scenario")]
    if not (reports and stats) or {"-R", "-q", "--format", ">"} & set(words):
        return []
    argv = ["bench-master", "report-scenario", "-q", "-s", stats]
    # Its exit code is that of the run's thresholds.
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder, check=False)  # noqa: S603
    return done.stdout.splitlines()


def answer_below(answer: list[str], lines: list[str], count: int) -> str:
    """Return which sentence of an answer a reader of so many lines does not see whole; empty if there is none.

    What a run without a comparison has of several treatments is a table.
    """
    seen = " ".join(" ".join(lines[:count]).split())
    sentences = [] if any(re.match(r".* jobs? done, \d", one) for one in answer[1:]) else answer
    return next((one for one in sentences if " ".join(one.split()) not in seen), "")


def show(lines: list[str], count: int) -> None:
    """Print the first lines of a screen, and where messages stand above a report, those of the report, too."""
    say("\n".join(lines[:count]))
    shown, begin = min(count, len(lines)), report_begins(lines)
    if begin is not None and begin > 1 and begin + 2 > count:
        if begin - 1 > shown:
            say(f"[{begin - 1 - shown} more lines; the report begins at line {begin}:]")
        shown = max(shown, begin - 1 + count)
        say("\n".join(lines[max(count, begin - 1) : shown]))
    if len(lines) > shown:
        say(f"[{len(lines) - shown} more lines]")


def report_begins(lines: list[str]) -> int | None:
    """Return the number of the line with a report's title, below messages of its run; None if there is no report."""
    pairs = enumerate(pairwise(lines), start=1)
    return next((number for number, (title, rule) in pairs if title and rule == "=" * len(title)), None)


def wish_of(argv: list[str]) -> Wish:
    """Return what a command line asks for."""
    parser = argparse.ArgumentParser(prog="script/cookbook", description="Run recipes of docs/cookbook.rst.")
    known = [one.number for one in recipes()]
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="recipes to run (default: all)")
    parser.add_argument("--measure", action="store_true", help="also the measurements, which take minutes to hours")
    parser.add_argument("--native", action="store_true", help="only what needs no container engine")
    parser.add_argument("--hosts", type=Path, metavar="FOLDER", help="with hosts.yaml and known_hosts, for recipe 9")
    parser.add_argument("--pipe", action="store_true", help="what a pipe gets, in place of a terminal")
    parser.add_argument("--lines", type=int, default=LINES, help=f"lines of each screen to show (default: {LINES})")
    parser.add_argument(
        "--deadline", type=float, default=7200.0, metavar="SECONDS", help="for each command (default: 7200)"
    )
    given = parser.parse_args(argv)
    for number in given.numbers:
        if number not in known:
            parser.error(f"there is no recipe {number}; there are {known[0]} to {known[-1]}")
    if given.hosts is not None and not (given.hosts / "hosts.yaml").exists():
        parser.error(f"--hosts {given.hosts}: there is no hosts.yaml in it")
    numbers = frozenset(given.numbers or known)
    return Wish(numbers, given.measure, given.native, given.hosts, given.pipe, given.lines, given.deadline)


def main() -> int:
    """Run the recipes that the command line asks for; return the exit code."""
    wish, engines = wish_of(sys.argv[1:]), Engines()
    failed = []
    for recipe in recipes():
        wanted = recipe.number in wish.numbers and any(is_asked_for(block, wish) for block in recipe.blocks)
        if wanted and not run_recipe(recipe, wish, engines):
            failed.append(recipe.number)
    if failed:
        say(f"failed: {', '.join(map(str, failed))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
