"""The reference of workloads: parameters and metrics, as ``list workloads`` prints them."""

from __future__ import annotations

from collections.abc import Iterator

from bench_master.commands.list.workloads import format_default, format_type
from bench_workloads.base import Workload
from bench_workloads.registry import workload_classes
from reference_pages.rst import document, entry, heading, paragraph, plain


def page() -> str:
    """Return the document, with a section for each workload."""
    return document(
        "Workloads",
        paragraph(
            "The parameters and metrics of each workload, as ``bench-master list workloads NAME`` prints them. "
            "`Workloads and their images <../workloads.rst>`_ explains their use."
        ),
        *(part for name, kind in sorted(workload_classes().items()) for part in _section(name, kind)),
    )


def _section(name: str, kind: type[Workload]) -> Iterator[str]:
    yield heading(name)
    yield paragraph(_sentence(kind.summary))
    if kind.caveat:
        yield paragraph(_sentence(kind.caveat))
    if not kind.parameters:
        yield "Its commands and metrics are keys of the job."
        return
    yield "**Parameters**"
    for one in kind.parameters:
        kind_and_default = f"``{format_type(one)}``; default ``{format_default(one)}``."
        yield entry(f"``{one.name}``", f"{_sentence(one.help)} {kind_and_default}")
    yield "**Metrics**"
    for one in kind.metrics:
        better = f"; {one.direction} is better" if one.direction else ""
        yield entry(f"``{one.name}`` ({one.unit}{better})" if one.unit else f"``{one.name}``", _sentence(one.help))


def _sentence(words: str) -> str:
    return plain(f"{words[:1].upper()}{words[1:]}.")
