"""The outputs report: what the tools of guest jobs printed, job by job, as the stats file keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from bench_common.records import OutputRecord, attempt_of, job_id_of
from bench_common.safe_text import escape_lines, one_line
from bench_common.stats.block_types import Header
from bench_master.reports import ReportSource


class OutputsReport:
    """Writes a line for each tool that ran (job, trial, treatment, step, exit code), then its output, indented."""

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the state of the run, then the outputs in the order of the file."""
        document = source.document
        out.write(f"run_state: {document.run_state}\n")
        out.writelines(f"INCOMPLETE: {one_line(reason)}\n" for reason in document.incomplete)
        # Of outputs a measured run keeps none, as they may be larger than all the rest: this is a walk of its own.
        for record in (record for block in source.run.blocks({"outputs"}) for record in block.body):
            out.write(f"\n{output_title(source.stats.header, record)}\n")
            out.writelines(_indented(record.stdout))
            if record.stderr:
                out.write("standard error:\n")
                out.writelines(_indented(record.stderr))


def output_title(header: Header, record: OutputRecord) -> str:
    """Return which job an output is of, and how the tool ended, on one line."""
    attempt = attempt_of(record.ticket)
    again = f" (attempt {attempt + 1})" if attempt else ""
    warmup = record.trial < len(header.trials) and header.trials[record.trial][2]
    known = record.treatment < len(header.treatments)
    what = header.treatments[record.treatment].title if known else f"treatment {record.treatment}"
    cut = ", truncated" if record.truncated else ""
    return (
        f"job {job_id_of(record.ticket)}{again}, trial {record.trial}{' (warm-up)' if warmup else ''}, "
        f"{one_line(what)}, step {one_line(record.step)}: exit code {record.exit_code}{cut}"
    )


def _indented(output: bytes) -> Iterator[str]:
    # Lines of a tool are indented, so that none passes for a line of the report.
    return (f"  {line}\n" for line in escape_lines(output.decode("utf-8", "backslashreplace")).splitlines())
