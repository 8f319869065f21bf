"""The program's sources as syntax trees: what tests of the code look at.

What is found is kept, the trees are not: millions of objects would slow down each garbage collection.
"""

import ast
from functools import cache


def syntax(path):
    """Parse a source."""
    return ast.parse(path.read_text("utf-8"))


@cache
def imports(path):
    """Return the modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)
