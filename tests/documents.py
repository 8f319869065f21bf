"""The documentation as trees: what tests of README and docs/ look at."""

from functools import cache
from pathlib import Path

from docutils import nodes
from docutils.core import publish_doctree

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.rst")), ROOT / "benchmarks" / "README.rst", *sorted((ROOT / "docs").glob("*.rst"))]


@cache
def tree(path):
    """Parse a document; a warning of docutils is an error (`docutils.utils.SystemMessage`)."""
    settings = {"halt_level": 2, "report_level": 5, "syntax_highlight": "none", "file_insertion_enabled": False}
    return publish_doctree(path.read_text("utf-8"), source_path=str(path), settings_overrides=settings)


def rows(path, *heads):
    """Return the rows of the table whose first head cells are `heads`, each cell as its text on one line."""
    for table in tree(path).findall(nodes.table):
        found = [[" ".join(cell.astext().split()) for cell in row] for row in table.findall(nodes.row)]
        if tuple(found[0][: len(heads)]) == heads:
            return found[1:]
    raise AssertionError(f"{path.name} has no table that begins with {heads}")


@cache
def study_charts():
    """Return the published charts of ``docs/workloads.rst``: scenario, option of the run, chart."""
    table = rows(ROOT / "docs" / "workloads.rst", "run", "draw")
    return [(*run.partition(" ")[::2], chart) for run, charts in table for chart in charts.split(", ")]


def blocks(path, *classes):
    """Return the literal blocks of a document that have all of these classes."""
    return [
        block for block in tree(path).findall(nodes.literal_block) if set(classes) <= set(block.get("classes", ()))
    ]


def literals(path):
    """Return the texts of a document's inline literals."""
    return [node.astext() for node in tree(path).findall(nodes.literal)]
