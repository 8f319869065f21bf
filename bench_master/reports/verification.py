"""Whether a published report follows from a stats file: the report is made again, and the two are compared.

Words are compared, not lines: a terminal of another width breaks lines elsewhere. The names of the stats file may
differ, since whoever verifies a report has a copy of it somewhere else.
"""

from __future__ import annotations

import difflib
import html
import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from bench_common.errors import UsageError
from bench_common.files import open_regular
from bench_common.safe_text import one_line, shorten
from bench_master.formatting import DEFAULT_WIDTH, page_of
from bench_master.reports import Detail, ReportSource, report_named

FORMATS: Final = {
    ".csv": "csv",
    ".htm": "html",
    ".html": "html",
    ".json": "json",
    ".jsonl": "jsonl",
    ".markdown": "markdown",
    ".md": "markdown",
    ".prom": "openmetrics",
    ".txt": "text",
    ".xml": "junit",
}
MOST_FINDINGS: Final = 20
MOST_ALIGNED: Final = 20_000
"""Reports are aligned up to so many words; of longer ones that differ in length the first difference is told."""
_DETAILS: Final[Sequence[Detail]] = ("page", "full", "answer")
_SHOWN: Final = 60
"""How many characters of a word are shown, around where it differs."""
_RULE: Final = re.compile(r"[=\-~^]+")
"""A line below a title: as long as the terminal wants it."""
_STATS_NAME: Final = re.compile(r"<dt>stats file</dt><dd>(.*?)</dd>|<property name=\"stats_file\" value=\"(.*?)\"")


class Difference(Struct, frozen=True):
    """A place where a report says something else than the rows of the stats file."""

    where: str
    """The line, or in JSON the keys that lead there."""
    published: str
    """What the report says; empty where it says nothing."""
    remade: str
    """What follows from the rows; empty where nothing does."""
    words: int = 1

    def __str__(self) -> str:
        if not self.remade:
            return f"{self.where}: {self.published} does not follow from the rows"
        if not self.published:
            return f"{self.where}: {self.remade} follows from the rows and is missing"
        return f"{self.where}: the report says {self.published}, from the rows follows {self.remade}"


class Verification(Struct, frozen=True):
    """How a report compares with what follows from a stats file."""

    format: str
    values: int
    """How many words it has; in JSON, how many values."""
    numbers: int
    """How many of these are or have a number."""
    differences: Sequence[Difference]
    """Where it differs; empty if everything follows from the rows."""

    @property
    def what(self) -> str:
        """Say what was compared."""
        return f"{self.values:,} {'values' if self.format == 'json' else 'words'}, {self.numbers:,} with a number"


def verify_report(source: ReportSource, report: Path, name: str) -> Verification:
    """Compare the file `report`, of the format `name`, with what follows from `source`.

    A report for people may be a page, all there is, or the answer alone: the one that is most alike counts. Raises
    `UsageError` for a file that cannot be read.
    """
    published = _read(report)
    details = _DETAILS if name in ("text", "markdown", "github") else _DETAILS[:1]
    found = [_compared(source, name, published, detail) for detail in details]
    return min(found, key=lambda each: sum(one.words for one in each.differences))


def format_of(report: Path, given: str | None) -> str:
    """Return the format of a report, `given` or by the ending of its name; raise `UsageError` if that names none."""
    if given is not None:
        return given
    suffix = report.suffix.lower()
    if suffix not in FORMATS:
        ends = f"that ends in {suffix}" if suffix else "without an ending"
        raise UsageError(f"{report}: no report {ends} is known; name its format: --format NAME")
    return FORMATS[suffix]


def _read(report: Path) -> str:
    try:
        with open_regular(report) as file:
            return file.read().decode("utf-8")
    except OSError as error:
        raise UsageError(f"{report}: cannot read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{report}: no text in UTF-8 (byte {error.start}): --verify compares texts") from error


def _compared(source: ReportSource, name: str, published: str, detail: Detail) -> Verification:
    again = ReportSource(source.stats, source.pctile, source.options, detail, source.chart_options, source.also)
    # The sums are the same, whatever is shown of them.
    again.__dict__["document"] = replace(source.document, stats_file=_stats_name(published) or str(source.stats.path))
    again.__dict__["run"] = source.run
    out = io.StringIO()
    with page_of(DEFAULT_WIDTH):
        report_named(name).write(again, out)
    if name == "json":
        return _compare_json(published, out.getvalue())
    return _compare_words(name, published, out.getvalue())


def _stats_name(published: str) -> str | None:
    named = _STATS_NAME.search(published)
    return html.unescape(named[1] or named[2]) if named else None


# -- words ----------------------------------------------------------------------------------------------------------


def _words(text: str) -> Iterator[tuple[int, str]]:
    """Yield each word with the number of its line, but no rules."""
    for number, line in enumerate(text.splitlines(), 1):
        for word in line.split():
            if not _RULE.fullmatch(word):
                yield number, word


def _compare_words(name: str, published: str, remade: str) -> Verification:
    theirs = list(_words(published))
    ours = [word for _, word in _words(remade)]
    said = [word for _, word in theirs]
    numbers = sum(any(map(str.isdigit, word)) for word in said)
    return Verification(name, len(said), numbers, [] if said == ours else list(_differences(theirs, said, ours)))


def _differences(theirs: Sequence[tuple[int, str]], said: Sequence[str], ours: Sequence[str]) -> Iterator[Difference]:
    def line(at: int) -> str:
        return f"line {theirs[min(at, len(theirs) - 1)][0] if theirs else 1}"

    if max(len(said), len(ours)) <= MOST_ALIGNED:
        matcher = difflib.SequenceMatcher(None, said, ours, autojunk=False)
        for tag, low, high, own_low, own_high in matcher.get_opcodes():
            if tag != "equal":
                texts = " ".join(said[low:high]), " ".join(ours[own_low:own_high])
                yield _difference(line(low), *texts, max(high - low, own_high - own_low))
    elif len(said) == len(ours):
        for at, (word, own) in enumerate(zip(said, ours, strict=True)):
            if word != own:
                yield _difference(line(at), word, own)
    else:
        pairs = zip(said, ours, strict=False)
        at = next((at for at, (word, own) in enumerate(pairs) if word != own), min(len(said), len(ours)))
        yield _difference(line(at), " ".join(said[at : at + 1]), " ".join(ours[at : at + 1]), max(1, len(said) - at))


def _difference(where: str, published: str, remade: str, words: int = 1) -> Difference:
    """Return a difference of two words, of long ones the part that differs."""
    pairs = zip(published, remade, strict=False)
    at = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(published), len(remade)))
    begin = max(0, at - _SHOWN // 3)

    def shown(text: str) -> str:
        part = one_line(text[begin : begin + _SHOWN])
        if not text:
            return ""
        return f"'{'…' if begin else ''}{part}{'…' if len(text) > begin + _SHOWN else ''}'"

    return Difference(where, shown(published), shown(remade), words)


# -- JSON -----------------------------------------------------------------------------------------------------------


def _compare_json(published: str, remade: str) -> Verification:
    try:
        theirs = json.loads(published)
    except json.JSONDecodeError as error:
        message = f"line {error.lineno}, column {error.colno}"
        return Verification("json", 0, 0, [Difference(message, f"no JSON ({error.msg})", "")])
    ours = json.loads(remade)
    if isinstance(theirs, dict):
        theirs["stats_file"] = ours["stats_file"]
    leaves = list(_leaves(theirs))
    numbers = sum(isinstance(value, int | float) and not isinstance(value, bool) for value in leaves)
    return Verification("json", len(leaves), numbers, list(_unlike(theirs, ours, "")))


def _leaves(value: Any) -> Iterator[Any]:
    match value:
        case dict():
            for each in value.values():
                yield from _leaves(each)
        case list():
            for each in value:
                yield from _leaves(each)
        case _:
            yield value


def _unlike(theirs: Any, ours: Any, where: str) -> Iterator[Difference]:
    """Yield the leaves in which two documents differ, with the keys that lead there."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            place = f"{where}.{key}" if where else str(key)
            if key not in ours:
                yield Difference(place, _value(theirs[key]), "")
            elif key not in theirs:
                yield Difference(place, "", _value(ours[key]))
            else:
                yield from _unlike(theirs[key], ours[key], place)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for at, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from _unlike(one, other, f"{where}[{at}]")
    elif theirs != ours or type(theirs) is not type(ours):
        yield Difference(where or "the document", _value(theirs), _value(ours))


def _value(value: Any) -> str:
    return shorten(one_line(json.dumps(value, ensure_ascii=False)), _SHOWN)
