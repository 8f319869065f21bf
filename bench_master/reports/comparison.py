"""Verdicts between runs as text, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Final, TextIO, TypeVar

from bench_common import load_entry, registered
from bench_common.safe_text import one_line
from bench_master.analysis.compare_runs import ADVICE
from bench_master.analysis.report_types import as_json
from bench_master.analysis.trust import flag_texts, judge_verdicts
from bench_master.analysis.verdict_types import (
    EACH_CONFIRMED,
    ArchiveReport,
    ChangeReport,
    ComparisonReport,
    FlagLevel,
    NoiseFloorReport,
    VerdictsReport,
    change_text,
    interval_text,
    of_side,
    spread_text,
    verdict_lines,
)
from bench_master.formatting import (
    Column,
    format_change,
    format_change_interval,
    format_share,
    format_value,
    listed,
    paragraph,
    plural,
    table_cell,
)
from bench_master.formatting import escape_markdown as escape
from bench_master.reports import naming_plugin
from bench_master.reports.table import (
    Cell,
    Field,
    Table,
    count,
    grouped,
    markdown_list,
    markdown_of,
    table_of,
    table_text,
    words,
)
from bench_master.reports.verdict_text import confidence_together, gate_lines, is_another_quotient
from bench_master.verdicts.between_runs import MIN_ARCHIVE
from bench_master.verdicts.reasons import Code, joined

One = TypeVar("One")
SHOWN: Final = 5
"""Runs and properties that are named without ``-v``."""
CSV_FIELDS: Final = (
    "treatment", "measure", "unit", "verdict", "reason", "ratio", "low", "high", "p", "earlier_value", "new_value",
    "earlier_runs", "new_runs", "tipping", "mde", "more_runs", "runs_low", "runs_high",
)  # fmt: skip


def answer_lines(verdicts: VerdictsReport) -> list[str]:
    """Return one line for each verdict, or for the history."""
    if not verdicts.comparisons:
        return [one_line(verdicts.answer)]
    return [one_line(line) for line in verdict_lines(verdicts.comparisons)]


def between_runs_of(verdicts: VerdictsReport | None) -> VerdictsReport | None:
    """Return the verdicts against earlier runs that a run's verdicts hold, or are; None without them."""
    if verdicts is None:
        return None
    return verdicts if verdicts.design.unit == "run" else verdicts.between


def answers(verdicts: VerdictsReport | None) -> list[str]:
    """Return the answer as a line, and before it the one against earlier runs; nothing without comparisons."""
    if verdicts is None or not verdicts.comparisons:
        return []
    between = between_runs_of(verdicts)
    # Who names an earlier run asks this first.
    found = [] if between is None else [f"Against earlier runs: {between.answer}"]
    found += [] if verdicts is between else [verdicts.answer]
    return [one_line(text) for text in found]


def _is_single(verdicts: VerdictsReport) -> bool:
    archive = verdicts.archive
    return archive is not None and len(archive.earlier) == len(archive.new) == 1


# -- text -----------------------------------------------------------------------------------------------------------


def write_text(verdicts: VerdictsReport, out: TextIO, *, verbose: bool = False) -> None:
    """Write the answer, the table, and how far to trust it; with `verbose` every run and property."""
    out.writelines(f"{line}\n" for line in text_lines(verdicts, verbose=verbose))


def text_lines(verdicts: VerdictsReport, *, verbose: bool = False) -> Iterator[str]:
    """Yield the lines of the text report."""
    yield from paragraph(one_line(verdicts.question))
    yield ""
    yield from indented((verdicts.answer, judge_verdicts(verdicts).sentence))
    yield ""
    if verdicts.comparisons:
        yield from table_text(comparisons_table(verdicts))
        yield ""
        yield from indented(_remarks(verdicts, verbose=verbose))
    archive = verdicts.archive
    if archive is not None:
        if (changes := changes_table(archive)).rows:
            yield from [*table_text(changes), ""]
        yield from indented(_trust(verdicts, archive, verbose=verbose))
    yield from indented(f"! {text}" for text in flag_lines(verdicts))
    yield from _differences(verdicts, verbose=verbose)
    if verdicts.gates:
        yield ""
        yield from gate_lines(verdicts.gates)
    if archive is not None:
        yield from _runs(archive, verbose=verbose)


def indented(texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of texts, each indented below its first one."""
    for text in texts:
        yield from paragraph(one_line(text), indent=2, hanging=4)


def comparisons_table(verdicts: VerdictsReport) -> Table:
    """Return each treatment against itself in the earlier runs."""
    levels = {each.confidence for each in verdicts.comparisons if each.low is not None or each.high is not None}
    within = f"{100 * levels.pop():.3g} % interval" if len(levels) == 1 else "interval" if levels else "95 % interval"
    within = "within the runs" if _is_single(verdicts) else within
    fields: list[Field[ComparisonReport]] = [
        words("treatment", lambda one: one.name),
        words("verdict", lambda one: one.word),
        Field(Column("earlier"), lambda one: _level(one, "earlier", one.a_value)),
        Field(Column("new"), lambda one: _level(one, "new", one.b_value)),
        Field(Column("difference"), lambda one: Cell(change_text(one), one.ratio)),
        Field(Column(within, left=True), lambda one: Cell(interval_text(one), one.low, left=True)),
    ]
    measures = {each.measure for each in verdicts.comparisons}
    if len(measures) > 1:
        fields.append(words("measure", lambda one: one.measure, droppable=True))
        caption = ""
    else:
        caption = "".join(f"Measure: {one} (median of the trials of a run)" for one in measures)
    shown = "the trials' ratios" if _is_single(verdicts) else "the runs' levels"
    other = any(map(is_another_quotient, verdicts.comparisons))
    notes = [f"A difference is of all {shown} together, not the quotient of the two values."] if other else []
    return table_of("Comparisons", caption, fields, verdicts.comparisons, notes)


def _level(comparison: ComparisonReport, side: str, value: float | None) -> Cell:
    """Return the level of a side; of one run whose trials are more than one number, their range."""
    spread = "" if value is not None else spread_text(comparison, of_side(comparison.b, side)).partition(", ")[0]
    return Cell(spread or format_value(value, comparison.unit), value)


def changes_table(archive: ArchiveReport | None) -> Table:
    """Return since when each treatment of a history has changed; without rows where a new run is compared."""
    fields: list[Field[ChangeReport]] = [
        words("treatment", lambda one: one.name),
        words("verdict", lambda one: one.word.upper()),
        Field(Column("difference"), lambda one: Cell(format_change(one.ratio, sided=True), one.ratio)),
        Field(
            Column("interval", left=True, droppable=True),
            lambda one: Cell(format_change_interval(one.low, one.high, one.ratio), one.low, left=True),
        ),
        count("runs", lambda one: one.runs),
        words(
            "since",
            lambda one: (one.created or "unknown")[:16].replace("T", " ") + (" *" if one.kind == "newest" else ""),
        ),
        words("first file", lambda one: PurePath(one.since).name, droppable=True),
    ]
    changes = [] if archive is None or archive.new else archive.changes
    newest = any(each.kind == "newest" for each in changes)
    notes = ["* the newest runs stand out; too few yet to be a step of the history."] if newest else []
    return table_of("Changes", "", fields, changes, notes)


def _remarks(verdicts: VerdictsReport, *, verbose: bool = False) -> Iterator[str]:
    yield from _limited(_limits(verdicts), verbose=verbose)
    yield from _limited(_shifts(verdicts), verbose=verbose)
    unit = f"more {verdicts.design.unit}"
    texts = [
        f"{each.name}: about {plural(each.more_rounds, unit)} of the new build would settle it"
        for each in verdicts.comparisons
        if each.more_rounds
    ]
    yield from _limited(texts, verbose=verbose)
    if _is_single(verdicts) and any(map(_is_imported, verdicts.comparisons)):
        yield f"Imported results carry no verdict, however many there are. For one, {ADVICE}."
    elif _is_single(verdicts):
        yield (
            f"An interval within the runs does not say by how much runs differ. For a verdict, {ADVICE} "
            "(`run-scenario --rerun-baseline` does so for an earlier run); or keep the runs: from "
            f"{MIN_ARCHIVE} earlier ones of different occasions on, {MIN_ARCHIVE - 1} more than here, "
            "`compare EARLIER... NEW` decides."
        )


def _is_imported(comparison: ComparisonReport) -> bool:
    return any(one.code is Code.UNUSABLE_RUN and one.data["kind"] == "imported" for one in comparison.reasons)


def _limits(verdicts: VerdictsReport) -> list[str]:
    """Return what limits the words, each reason once."""
    limited = grouped((each for each in verdicts.comparisons if each.reasons), lambda each: tuple(each.reasons))
    found = [([each.name for each in own], joined(reasons) or "") for reasons, own in limited.items()]
    every = len(verdicts.comparisons)
    return [_sentence(text) if len(who) == every else f"{listed(who, SHOWN)}: {text}" for who, text in found]


def _shifts(verdicts: VerdictsReport) -> list[str]:
    """Return what would explain each refused difference, the largest first."""
    refused = [each for each in verdicts.comparisons if each.verdict == "refused" and each.tipping is not None]
    shift = "A shift of {} between the runs would explain it all"
    none = "The intervals within the runs show no difference that would need an explanation"
    return [
        (f"{each.name}: " if len(refused) > 1 else "")
        + (shift.format(format_share(each.tipping)) if each.tipping else none)
        for each in sorted(refused, key=lambda one: -(one.tipping or 0.0))
    ]


def _limited(texts: Sequence[str], *, verbose: bool) -> Iterator[str]:
    """Yield each text as a sentence; of many the first, and how many more there are."""
    shown, more = _shown(texts, verbose=verbose)
    yield from (f"{text}." for text in shown)
    if more:
        yield f"... and {more} more (-v)"


def _shown(found: Sequence[One], *, verbose: bool) -> tuple[Sequence[One], int]:
    """Return what is shown without ``-v``, and how many more there are."""
    return (found, 0) if verbose else (found[:SHOWN], max(0, len(found) - SHOWN))


def _trust(verdicts: VerdictsReport, archive: ArchiveReport, *, verbose: bool = False) -> Iterator[str]:
    together = len([each for each in verdicts.comparisons if each.verdict != "refused"])
    reasons = () if _is_single(verdicts) else ("; ".join(verdicts.design.reasons),)
    text = f"{'; '.join((_sentence(verdicts.design.scope), *reasons))}."
    if together > 1 and verdicts.family.control != EACH_CONFIRMED:
        text += f" {confidence_together(together, 'verdict', '95 %')}."
    yield text
    noisiest_first = sorted(archive.noise, key=lambda each: -(each.sd or 0.0))
    yield from _limited([_noise(each, archive, verdicts) for each in noisiest_first], verbose=verbose)


def _noise(floor: NoiseFloorReport, archive: ArchiveReport, verdicts: VerdictsReport) -> str:
    unit = "run" if verdicts.family.control == EACH_CONFIRMED else "occasion"
    reach = None if floor.high is None else floor.high - 1.0
    gate = f"a gate at {100 * verdicts.family.margin:.3g} %"
    needed = f"no number of new runs carries {gate}: it takes more earlier runs, or a quieter machine"
    if floor.new_runs:
        needed = f"{gate} needs {plural(floor.new_runs, unit)} of the new build"
    which = f"{floor.name}: runs" if len(archive.noise) > 1 else "Runs"
    return f"{which} of this differ by {format_share(reach)} (95 %, {floor.runs} {unit}s); {needed}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _differences(verdicts: VerdictsReport, *, verbose: bool) -> Iterator[str]:
    shown, more = _shown(verdicts.environment.differences, verbose=verbose)
    if shown:
        yield from paragraph("The sides differ in:", indent=2)
    for each in shown:
        values = " -> ".join(each.values.values())
        yield from paragraph(one_line(f"{each.name}: {values} ({each.level})"), indent=4, hanging=6)
    if more:
        yield f"    and {more} more (-v)"


def _runs(archive: ArchiveReport, *, verbose: bool) -> Iterator[str]:
    shown, more = _shown(archive.left_out, verbose=verbose)
    if shown:
        yield f"  Left out: {plural(len(archive.left_out), 'file')}"
    for each in shown:
        yield f"    {one_line(each.file)}"
        yield from paragraph(one_line(each.why), indent=6)
    if more:
        yield f"    and {more} more (-v)"
    for name, runs in (("Earlier", archive.earlier), ("New", archive.new)) if verbose else ():
        if runs:
            yield f"  {name} runs:"
        for run in runs:
            yield "    " + one_line(f"{run.created or 'time unknown'}  {run.file}")


# -- other formats --------------------------------------------------------------------------------------------------


def write_json(verdicts: VerdictsReport, out: TextIO) -> None:
    """Write ``weighbridge-verdicts``, as the JSON report has it under ``verdicts``."""
    json.dump(as_json(verdicts), out, indent=2, ensure_ascii=False, allow_nan=False)
    out.write("\n")


def write_csv(verdicts: VerdictsReport, out: TextIO) -> None:
    """Write one row for each comparison."""
    archive = verdicts.archive
    noise = {each.name: each for each in archive.noise} if archive is not None else {}
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_FIELDS)
    runs = (archive.runs, len(archive.new)) if archive is not None else (None, None)
    for each in verdicts.comparisons:
        floor = noise.get(each.name)
        ends = (floor.low, floor.high) if floor is not None else (None, None)
        row = [each.name, each.measure, each.unit, each.verdict, each.reason, each.ratio, each.low, each.high, each.p]
        row += [each.a_value, each.b_value, *runs, each.tipping, each.mde, each.more_rounds, *ends]
        writer.writerow(["" if cell is None else table_cell(cell) if isinstance(cell, str) else cell for cell in row])


def write_markdown(verdicts: VerdictsReport, out: TextIO) -> None:
    """Write a table that can be pasted into an issue, and the remarks below it."""
    out.writelines(f"{line}\n" for line in markdown_lines(verdicts))


def markdown_lines(verdicts: VerdictsReport) -> Iterator[str]:
    """Yield the lines of the Markdown report."""
    yield f"**{escape(verdicts.question)}**"
    for text in (one_line(verdicts.answer), judge_verdicts(verdicts).sentence):
        yield from ("", escape(text))
    yield ""
    for table in (comparisons_table(verdicts), changes_table(verdicts.archive)):
        if table.rows:
            yield from markdown_of(table)
    yield from markdown_list(list(remark_lines(verdicts)))


def remark_lines(verdicts: VerdictsReport) -> Iterator[str]:
    """Yield what stands below the table of verdicts, each remark on one line."""
    yield from map(one_line, _remarks(verdicts))
    if verdicts.archive is not None:
        yield from map(one_line, _trust(verdicts, verdicts.archive))
    yield from flag_lines(verdicts)


def flag_lines(verdicts: VerdictsReport) -> Iterator[str]:
    """Yield what the diagnosis found in the runs and in each comparison, once."""
    levels: tuple[FlagLevel, ...] = ("refusal", "warning", "note")
    for level in levels:
        yield from flag_texts(verdicts, level, {})


FORMATS: Final = "weighbridge.comparisons"
"""The entry points that write verdicts between runs, ``function(verdicts, out)``, by the name of their format."""


def comparison_formats() -> tuple[str, ...]:
    """Return the names of the formats of verdicts between runs, that for people first."""
    return ("text", *sorted(entry.name for entry in registered(FORMATS)))


def write_comparison(name: str, verdicts: VerdictsReport, out: TextIO) -> None:
    """Write verdicts between runs in a format besides text; raise `InfrastructureError` for a broken package."""
    entry = next(one for one in registered(FORMATS) if one.name == name)
    with naming_plugin(f"format {name!r} ({entry.value})"):
        write: Callable[[VerdictsReport, TextIO], None] = load_entry(entry)
    write(verdicts, out)
