#!/usr/bin/env python3
"""Usage: python benchmarks/house.py [--arrows]

Prints how the program is cut: modules, their sizes, the fullest folders, import cycles; with --arrows which folder
imports which. ``tests/unit/test_house.py`` holds the limits.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("bench_common", "bench_master", "bench_worker", "weighbridge", "workloads")


@dataclass
class Module:
    """One Python file of the program."""

    name: str
    """Dotted name."""
    folder: str
    """Its folder, as ``bench_master/run``."""
    lines: int
    imports: set[str] = field(default_factory=set)
    """Modules of the program that it imports anywhere, inside functions too."""
    loads: set[str] = field(default_factory=set)
    """Modules of the program that it imports when it is loaded itself."""
    libraries: set[str] = field(default_factory=set)
    """Top-level packages from elsewhere that it imports, the standard library included, type stubs left out."""


def read_modules(root: Path = ROOT) -> dict[str, Module]:
    """Return every module of the program by its dotted name."""
    paths = {
        dotted(path.relative_to(root)): path
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }
    return {name: read_module(name, path, root, paths) for name, path in paths.items()}


def dotted(path: Path) -> str:
    """Return the dotted name of a module's path."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def read_module(name: str, path: Path, root: Path, known: Mapping[str, Path]) -> Module:
    """Return a module with what it imports."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    module = Module(name, path.parent.relative_to(root).as_posix(), len(text.splitlines()))
    at_load = {id(node) for node in nodes_at_load(tree.body)}
    for node in ast.walk(tree):
        for target in imported_names(node):
            ours = target if target in known else target.rpartition(".")[0]
            if ours in known:
                module.imports.add(ours)
                if id(node) in at_load:
                    module.loads.add(ours)
            elif target.split(".")[0] not in (*PACKAGES, "_typeshed"):
                module.libraries.add(target.split(".")[0])
    module.imports.discard(name)
    module.loads.discard(name)
    return module


def imported_names(node: ast.AST) -> Iterator[str]:
    """Yield the dotted names that an import statement, or a call of `import_module`, may mean."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        yield from (text.value for text in node.args if isinstance(text, ast.Constant))
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def nodes_at_load(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is loaded."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from nodes_at_load([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from nodes_at_load([*node.body, *node.orelse, *node.finalbody])


def find_cycles(modules: Mapping[str, Module]) -> list[list[str]]:
    """Return the groups of modules that load one another (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(modules[name].loads):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            cut = stack.index(name)
            if len(stack) - cut > 1:
                cycles.append(sorted(stack[cut:]))
            del stack[cut:]

    sys.setrecursionlimit(10_000)
    for name in sorted(modules):
        if name not in index:
            visit(name)
    return cycles


def find_arrows(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return which folders each folder imports from."""
    arrows: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        arrows[module.folder] |= {modules[target].folder for target in module.imports} - {module.folder}
    return dict(arrows)


def main(arguments: list[str]) -> int:
    """Print the figures."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    modules = read_modules()
    sizes = sorted(module.lines for module in modules.values())
    folders = Counter(module.folder for module in modules.values())
    print(f"modules         {len(modules)}")
    print(f"lines           {sum(sizes)}")
    print(f"lines, median   {statistics.median(sizes):g}")
    print(f"lines, mean     {statistics.fmean(sizes):.0f}")
    for module in sorted(modules.values(), key=lambda module: -module.lines)[:5]:
        print(f"largest         {module.lines} {module.name}")
    for folder, count in folders.most_common(3):
        print(f"fullest folder  {count} {folder}")
    cycles = find_cycles(modules)
    print(f"import cycles   {len(cycles)}")
    for cycle in cycles:
        print(f"  {' <-> '.join(cycle)}")
    if "--arrows" in arguments:
        for folder, targets in sorted(find_arrows(modules).items()):
            print(f"{folder}: {', '.join(sorted(targets))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
