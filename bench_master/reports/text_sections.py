"""The tables of the text report that tell of the machines: their load, and the harness's own share in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bench_master.reports.layout import Column, paragraph, seconds, share, significant, size, table

_DIGITS: Final = 3

_LOAD: Final = {
    "cpu_user_percent": "user%",
    "cpu_system_percent": "sys%",
    "cpu_iowait_percent": "iowait%",
    "cpu_steal_percent": "steal%",
    "memory_used_bytes": "memory",
    "disk_read_bytes_per_s": "read/s",
    "disk_written_bytes_per_s": "write/s",
    "net_received_bytes_per_s": "rx/s",
    "net_sent_bytes_per_s": "tx/s",
}


def load_table(document: Mapping[str, Any]) -> list[str]:
    """Return mean and maximum of each host's samples; nothing where there are no samples."""
    columns = [Column("", left=True), *(Column(title, spare=title in ("rx/s", "tx/s")) for title in _LOAD.values())]
    rows = []
    for name, process in _processes(document):
        samples = process["samples"]
        if samples:
            for figure in ("mean", "max"):
                cells = [_amount(samples[key], figure) if key in samples else "-" for key in _LOAD]
                rows.append([f"{name} {figure}", *cells])
    return table(columns, rows) if rows else []


def _amount(sample: Mapping[str, Any], figure: str) -> str:
    if sample["unit"].startswith("B"):
        return size(sample[figure]).replace(" ", "")
    return f"{sample[figure]:.1f}" if sample["unit"] == "%" else significant(sample[figure])


def harness_table(document: Mapping[str, Any]) -> list[str]:
    """Return how busy and how late the event loops of master and workers were."""
    columns = [Column("process", left=True), Column("readings"), Column("busy mean"), Column("busy max")]
    columns += [Column("lag p99"), Column("lag max")]
    rows = []
    for name, process in _processes(document):
        loop = process["loop"]
        if loop:
            cells = [str(loop["n"]), share(loop["busy_mean"]), share(loop["busy_max"])]
            rows.append([name, *cells, seconds(loop["lag_p99_s"]), seconds(loop["lag_max_s"])])
    return table(columns, rows) if rows else []


def timing(entry: Mapping[str, Any], hosts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return how far a treatment's stamps may be off, and how busy and how late the workers' loops were meanwhile."""
    p99, most = entry["timing_error_p99_s"], entry["timing_error_max_s"]
    if p99 is None:
        return []
    text = f"timing error <= {seconds(p99, _DIGITS)} p99, {seconds(most, _DIGITS)} max"
    busy = entry["worker_busy_share"]
    if busy is not None:
        text += f"; worker loop{'s' if len(hosts) > 1 else ''} busy {share(busy)}"
        text += f", lag <= {seconds(entry['worker_lag_max_s'], _DIGITS)}"
    return paragraph(text, indent=2, hanging=4)


def _processes(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "master", document["master"]
    for host in document["hosts"]:
        yield str(host["worker_id"]), host
