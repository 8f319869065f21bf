"""The outputs report: what the tools of guest jobs printed, job by job, as the stats file keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, TextIO

from bench_common.records import OutputRecord, attempt_of, job_id_of
from bench_common.safe_text import escape_lines, one_line
from bench_common.stats.reader import Block, StatsFile
from bench_master.reports import ReportSource


class OutputsReport:
    """Writes a line for each tool that ran (job, trial, treatment, step, exit code), then its output, indented."""

    name: ClassVar[str] = "outputs"

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the state of the run, then the outputs in the order of the file."""
        document = source.document
        out.write(f"run_state: {document.run_state}\n")
        out.writelines(f"INCOMPLETE: {one_line(reason)}\n" for reason in document.incomplete)
        titles = OutputTitles(source.stats)
        # Of outputs a measured run keeps none, as they may be larger than all the rest: this is a walk of its own.
        for record in outputs_in(source.run.blocks({"outputs"})):
            out.write(f"\n{titles.title(record)}\n")
            out.writelines(_indented(record.stdout))
            if record.stderr:
                out.write("standard error:\n")
                out.writelines(_indented(record.stderr))


class OutputTitles:
    """Describes outputs by the header of their file."""

    def __init__(self, stats: StatsFile) -> None:
        header = stats.header
        self._treatments = [one_line(each.title) for each in header.treatments]
        self._trials = header.trials

    def title(self, record: OutputRecord) -> str:
        """Return which job it is of, and how the tool ended, on one line."""
        attempt = attempt_of(record.ticket)
        again = f" (attempt {attempt + 1})" if attempt else ""
        warmup = record.trial < len(self._trials) and self._trials[record.trial][2]
        known = record.treatment < len(self._treatments)
        what = self._treatments[record.treatment] if known else f"treatment {record.treatment}"
        cut = ", truncated" if record.truncated else ""
        return (
            f"job {job_id_of(record.ticket)}{again}, trial {record.trial}{' (warm-up)' if warmup else ''}, {what}, "
            f"step {one_line(record.step)}: exit code {record.exit_code}{cut}"
        )


def outputs_in(blocks: Iterable[Block]) -> Iterator[OutputRecord]:
    """Yield the outputs in blocks of outputs."""
    for block in blocks:
        yield from block.body


def _indented(output: bytes) -> Iterator[str]:
    # Lines of a tool are indented, so that none passes for a line of the report.
    return (f"  {line}\n" for line in escape_lines(output.decode("utf-8", "backslashreplace")).splitlines())
