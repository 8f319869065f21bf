"""The page "When we refuse": each reason that the program can give for no word is on it, and each flag."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from bench_master.verdicts.diagnosis import SeriesKind

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "when-we-refuse.rst").read_text("utf-8").split())
SOURCES = [*(ROOT / "bench_master" / "verdicts").glob("*.py"), *(ROOT / "bench_master" / "analysis").glob("*.py")]
GIVES_REASONS = re.compile(
    r"refus|why|^limits_of$|^_by_gap$|^_by_interval$|^against_archive$|^grade_|_margin_flag$|REASON|HANGS|EFFECT_CHANGED"
)
"""Names of the functions and constants that give reasons."""
SHORTEST = 12
"""Parts of a reason that are shorter say nothing by themselves."""


def parts(node):
    """Return the constant texts of a piece of code, but for its docstrings."""
    texts = {
        id(one.body[0].value)
        for one in ast.walk(node)
        if isinstance(one, ast.FunctionDef) and isinstance(one.body[0], ast.Expr)
    }
    found = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and id(one) not in texts)
    for text in found:
        if isinstance(text, str) and len(text.strip()) >= SHORTEST and " " in text.strip():
            yield " ".join(text.strip(" ;:,()").split())


def names(node):
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [one.id for one in targets if isinstance(one, ast.Name)]


def reasons():
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if any(GIVES_REASONS.search(name) for name in names(node)):
                found.update(parts(node))
    return sorted(found)


def kinds():
    found = set(get_args(SeriesKind))
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "FlagReport":
                given = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "kind")]
                found.update(one.value for one in given if isinstance(one, ast.Constant))
    return sorted(found)


@pytest.mark.parametrize("reason", reasons())
def test_every_reason_is_on_the_page(reason):
    """What a report says of a verdict that it does not give can be looked up, word for word."""
    assert reason in PAGE


@pytest.mark.parametrize("kind", kinds())
def test_every_flag_is_on_the_page(kind):
    """With what it means and what to do."""
    assert f"``{kind}``" in PAGE
