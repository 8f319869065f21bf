"""The reference of reasons, from the table that turns them into sentences."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

from bench_master.verdicts.reasons import SENTENCES, Code, Reason
from reference_pages.rst import document, entry, heading, paragraph, plain


def page() -> str:
    """Return the document, with a section for each group of codes."""
    parts = []
    for group, name in re.findall(r"# -- (.+)|^    ([A-Z\d_]+) = ", inspect.getsource(Code), re.MULTILINE):
        parts.append(heading(f"{group[:1].upper()}{group[1:]}") if group else _reason(Code[name]))
    return document(
        "Reasons",
        paragraph(
            "What Weighbridge says where it gives no word, a word with a remark, or a flag: the code, the sentence "
            "of an example, and what it means or what to do. In JSON a reason is an object with ``code`` and "
            "``data``; sentences may change. `Methodology <../methodology.rst>`_ explains the terms."
        ),
        *parts,
    )


def _reason(code: Code) -> str:
    sentence = SENTENCES[code]
    kinds = list(sentence.text) if isinstance(sentence.text, Mapping) else [None]
    keys = ", ".join(f"``{key}``" for key in sentence.example)
    texts = [*(_example(code, kind) for kind in kinds), plain(sentence.advice), f"Data: {keys}." if keys else ""]
    return entry(f"``{code}``", *filter(None, texts))


def _example(code: Code, kind: str | None) -> str:
    """Return the sentence of an example, of one kind where there are several."""
    data = SENTENCES[code].example
    text = Reason(code, data if kind is None else {**data, "kind": kind}).sentence()
    shown = re.sub(r"([\\*_|`<>])", r"\\\1", text)
    return f"*{shown}*" if kind is None else f"``{kind}``: *{shown}*"
