#!/usr/bin/env python3
"""Usage: python benchmarks/house.py [--write-imports]

Prints how the program is cut: modules, their sizes, the fullest folders, import cycles, the modules that are long
enough to ask whether each is still one thing, accesses to the header of a stats file that no type checks, where a job
is asked for its kind, modules that mention a feature outside of its folders, logic that compares or rewrites the
sentence of a reason, makers of verdicts and of the answer, and how many shapes a treatment and a run have; with
--write-imports it writes docs/imports.rst, which folder imports which. ``tests/unit/test_structure.py`` holds
that page and most of the figures.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
ALARM_LINES = 450
"""A module from this length on is listed: an alarm, not a limit, for a module is one thing, long or short."""
FEATURE_PACKAGE = "bench_features"
PACKAGES = ("bench_common", "bench_features", "bench_master", "bench_worker", "weighbridge", "bench_workloads")


FEATURES = {
    "objects": re.compile(
        r"bench_features\.objects\b|\b[Oo]n (?:an )?objects?\b|\b[Oo]bject stores?\b|\bObjects[A-Z]\w+|\bStoreNeed\b"
        r"|== \"objects\"|\bSwift\b|\bswift\b|\bS3\b|\bs3\b"
    )
}
"""What a module has that knows of a feature, which has a folder of this name."""


FEATURES_THAT_KNOW_OTHERS: dict[tuple[str, str], str] = {
    ("archive", "charts"): "trends are drawn: in the archive's pages, and by archive trend --chart",
    ("clusters", "fleet"): "a scheduler is one more launcher of the workers of an inventory",
    ("compat", "objects"): "scenarios and stat files of ssbench are about jobs on objects",
}
"""Pairs of features of which the first imports the second, and why; there are no others."""


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
    for node in ast.walk(tree) if "import_module" in text else statements(tree):
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
    elif isinstance(node, ast.Call) and called_name(node).endswith("import_module"):
        yield from (text.value for text in node.args if isinstance(text, ast.Constant))
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def called_name(call: ast.Call) -> str:
    """Return the last name of what is called, as ``import_module`` of ``importlib.import_module``."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield every statement within a node, which takes a fraction of the time that `ast.walk` does."""
    for part in ("body", "handlers", "cases", "orelse", "finalbody"):
        for child in getattr(node, part, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child)


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


def imports_page(modules: Mapping[str, Module]) -> str:
    """Return docs/imports.rst: for each folder the folders that it imports from."""
    lines = [
        "=======================",
        "Imports between folders",
        "=======================",
        "",
        "``python benchmarks/house.py --write-imports`` writes this page;",
        "`architecture <architecture.rst>`_ says which imports there may be.",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 30 70",
        "",
        "   * - folder",
        "     - imports from",
    ]
    for folder, targets in sorted(find_arrows(modules).items()):
        lines += [f"   * - ``{folder}``", f"     - {', '.join(f'``{one}``' for one in sorted(targets)) or 'nothing'}"]
    return "\n".join(lines) + "\n"


def feature_of(name: str) -> str:
    """Return the feature that a dotted name belongs to; empty for the kernel."""
    package, _, rest = name.partition(".")
    return rest.partition(".")[0] if package == FEATURE_PACKAGE else ""


def feature_imports_of_kernel(modules: Mapping[str, Module]) -> list[tuple[str, str]]:
    """Return which module of the kernel imports which of a feature: there should be none."""
    return sorted(
        (name, target)
        for name, module in modules.items()
        if not name.startswith(FEATURE_PACKAGE)
        for target in module.imports
        if target.startswith(FEATURE_PACKAGE)
    )


def kernel_names_of_features(root: Path = ROOT) -> list[str]:
    """Return where the kernel names the package of features, as ``path:line``: entry points alone may lead there."""
    return [
        f"{path.relative_to(root)}:{number}"
        for path in program_files(root)
        if path.relative_to(root).parts[0] != FEATURE_PACKAGE
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if FEATURE_PACKAGE in line
    ]


def imports_between_features(modules: Mapping[str, Module]) -> set[tuple[str, str]]:
    """Return the pairs of features of which the first imports the second."""
    pairs = {(feature_of(name), feature_of(target)) for name, module in modules.items() for target in module.imports}
    return {(one, other) for one, other in pairs if one and other and one != other}


HALVES = {
    "common": ("bench_common", "bench_workloads"),
    "master": ("bench_common", "bench_master", "bench_workloads"),
    "worker": ("bench_common", "bench_worker", "bench_workloads"),
}
"""The folders of a feature that both sides have a part in, and the packages of the kernel that each may import."""


def halves_of(modules: Mapping[str, Module]) -> dict[str, str]:
    """Return which of `HALVES` each module of a feature belongs to: a feature without halves is the master's.

    What a feature with halves has beside them, which names its parts as entry points, is common to both.
    """
    cut = {feature_of(name) for name in modules if name.split(".")[2:3] == ["worker"]}
    found = {}
    for name in modules:
        if feature_of(name):
            inside = name.split(".")[2] if name.count(".") > 1 else ""
            found[name] = (inside if inside in HALVES else "common") if feature_of(name) in cut else "master"
    return found


def crossings_of_halves(modules: Mapping[str, Module]) -> list[tuple[str, str]]:
    """Return which module of a feature imports what only the other side may: there should be none."""
    halves, found = halves_of(modules), []
    for name, half in halves.items():
        for target in modules[name].imports:
            other = halves.get(target)
            known = other in ("common", half) if other is not None else target.partition(".")[0] in HALVES[half]
            if not known:
                found.append((name, target))
    return sorted(found)


def untyped_header_accesses(root: Path = ROOT) -> list[str]:
    """Return where a stats file's header has no declared type: accesses by name, and signatures, as ``path:line``."""
    found = []
    for path in program_files(root):
        text = path.read_text(encoding="utf-8")
        if "header" in text:
            found += [f"{path.relative_to(root)}:{line}" for line in sorted(untyped_headers(ast.parse(text)))]
    return found


def untyped_headers(tree: ast.Module) -> set[int]:
    """Return the lines that declare a header as a map of `Any`, or read a key of one that is no `Header`."""
    lines = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        declared = {one.arg: one.annotation for one in arguments}
        is_typed = "header" in declared and "Header" in annotation_text(declared["header"])
        if is_map_of_any(declared.get("header")) or (function.name == "header" and is_map_of_any(function.returns)):
            lines.add(function.lineno)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                # A tuple may have it in any place: the property of that name is typed.
                names = {
                    name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)
                }
                sources = {part.attr for part in ast.walk(node.value) if isinstance(part, ast.Attribute)}
                is_typed |= "header" in names and "header" in sources
        lines |= {node.lineno for node in ast.walk(function) if reads_header_key(node) and not is_typed}
    for node in ast.walk(tree):
        target = (
            getattr(node.target, "attr", getattr(node.target, "id", "")) if isinstance(node, ast.AnnAssign) else ""
        )
        if target.strip("_") == "header" and is_map_of_any(node.annotation):
            lines.add(node.lineno)
    return lines


def annotation_text(annotation: ast.expr | None) -> str:
    """Return an annotation as it is written; empty where there is none."""
    return "" if annotation is None else ast.unparse(annotation)


def is_map_of_any(annotation: ast.expr | None) -> bool:
    """Return whether an annotation is a map whose values may be anything."""
    text = annotation_text(annotation)
    return any(f"{kind}[str, Any]" in text for kind in ("dict", "Mapping", "MutableMapping"))


def reads_header_key(node: ast.AST) -> bool:
    """Return whether an expression reads a key, given as a text, of what is called ``header``."""
    if isinstance(node, ast.Subscript):
        owner, key = node.value, node.slice
    elif (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args
    ):
        owner, key = node.func.value, node.args[0]
    else:
        return False
    is_text = isinstance(key, ast.Constant) and isinstance(key.value, str)
    return is_text and isinstance(owner, ast.Name) and owner.id == "header"


def questions_of_kind(root: Path = ROOT) -> list[str]:
    """Return where a job is asked for its kind, by `isinstance` or `match`, as ``path:line``."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in program_files(root)}
    kinds = {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Job" for base in node.bases)
    }
    return [
        f"{path.relative_to(root)}:{node.lineno}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call | ast.MatchClass) and asked_classes(node) & kinds
    ]


def asked_classes(node: ast.Call | ast.MatchClass) -> set[str]:
    """Return the names of the classes that `isinstance` or a pattern of `match` asks for."""
    if isinstance(node, ast.MatchClass):
        asked: ast.expr = node.cls
    elif called_name(node) == "isinstance" and len(node.args) > 1:
        asked = node.args[1]
    else:
        return set()
    return {getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(asked)}


def mentions(feature: str, root: Path = ROOT) -> list[str]:
    """Return the modules outside of a feature's folder that mention it, by path."""
    own = f"{FEATURE_PACKAGE}/{feature}/"
    paths = (path.relative_to(root).as_posix() for path in program_files(root))
    return [
        path
        for path in paths
        if not path.startswith(own) and FEATURES[feature].search((root / path).read_text(encoding="utf-8"))
    ]


def program_files(root: Path) -> list[Path]:
    """Return every Python file of the program."""
    return [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]


def shapes_of(thing: str, root: Path = ROOT) -> list[str]:
    """Return the classes and tables that declare what a thing is (``Treatment``, ``Run``), as ``path:line name``.

    They are named for it, and have two fields at least that tell it from others of its kind. What has another shape
    of the thing as a field adds to that one, and is none of its own; `MENTIONS` are none either.
    """
    telling = _TELLING[thing]
    found, holders = [], {}
    for path in (path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if thing in text or thing.upper() in text else ():
            if isinstance(node, ast.ClassDef):
                name, fields = (
                    node.name,
                    {ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)},
                )
            elif isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call):
                name = ast.unparse(node.target)
                fields = {text.value for text in ast.walk(node.value) if isinstance(text, ast.Constant)}
            else:
                continue
            words = set(re.findall(r"[A-Z][a-z]+|[A-Z]+", name))
            if {thing, thing.upper()} & words and len(telling & fields) > 1 and name not in MENTIONS:
                found.append((f"{path.relative_to(root)}:{node.lineno}", name))
                holders[name] = field_types(node)
    names = {name for _, name in found}
    return [f"{place} {name}" for place, name in found if not names & holders[name]]


def field_types(node: ast.ClassDef | ast.AnnAssign) -> set[str]:
    """Return the types of a class's fields that are a name alone: what it has one of."""
    body = node.body if isinstance(node, ast.ClassDef) else ()
    return {ast.unparse(one.annotation) for one in body if isinstance(one, ast.AnnAssign)}


MENTIONS: Final[Mapping[str, str]] = {
    "RunFileReport": "says which run is meant (its file, its id, when it began) and why it does not count",
}
"""What is named for a thing and has fields of it, and is no shape of it; with what it is."""


SHAPES: Final[Mapping[str, tuple[str, str]]] = {
    "Treatment": ("wire", "what workers are sent: each field is there, and checked"),
    "StoredTreatment": (
        "wire",
        "the same in a file, which may be damaged, imported or older: each field may be missing",
    ),
    "TreatmentReport": ("measured", "what reports show"),
    "RunReport": ("measured", "what reports show"),
    "RunSummary": (
        "measured",
        "one level for each treatment: thousands of runs are compared, without their documents",
    ),
    "ArchivedTreatment": ("indexed", "what goes into the archive's index and comes out of it"),
    "ArchivedRun": ("indexed", "what goes into the archive's index and comes out of it"),
}
"""The level of each shape (on the wire, measured, indexed), and what it is beside others of that level."""


_TELLING: Final = {
    "Treatment": frozenset({"title", "labels", "treatment", "engine", "measure", "definition", "key"}),
    "Run": frozenset({"run_id", "id", "created", "began_s", "hosts", "scenario", "treatments", "header"}),
}
"""Fields by which a shape of each thing is known."""


SENTENCES: Final = frozenset({"reason", "why", "no_verdict", "answer"})
"""Attributes that are the sentence of a verdict, a refusal or a run that is left out; `text` is that of a flag."""
VERDICT_FOLDERS: Final = (
    *(f"bench_master/{name}" for name in ("analysis", "reports", "run_data", "verdicts")),
    *(f"{FEATURE_PACKAGE}/{name}" for name in ("archive", "charts", "compat", "formats")),
)
MAKERS: Final[Mapping[str, tuple[str, ...]]] = {
    "makers of verdicts": ("ComparisonReport", "VerdictsReport"),
    "makers of the answer": ("make_answer",),
}
"""Who makes verdicts calls one of these classes; who makes the answer defines or calls this function."""


def sentence_comparisons(root: Path = ROOT) -> list[str]:
    """Return where logic compares, searches or rewrites the sentence of a reason, as ``path:line``."""
    found = []
    for path in (path for folder in VERDICT_FOLDERS for path in sorted((root / folder).glob("*.py"))):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        lines = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.expr) and compares_sentence(node)}
        found += [f"{path.relative_to(root)}:{line}" for line in sorted(lines)]
    return found


def compares_sentence(node: ast.expr) -> bool:
    """Return whether an expression compares the sentence of a reason with a text, or changes a part of it.

    A verdict's own `reason` is a `Reason` there, whose code is compared: ``verdict.reason.code is Code.NOOP``.
    """
    if isinstance(node, ast.Compare):
        texts = not any(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops)
        return texts and any(is_sentence(side) for side in (node.left, *node.comparators))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _TEXT_LOGIC and is_sentence(node.func.value)
    return False


_TEXT_LOGIC: Final = frozenset(
    {"replace", "startswith", "endswith", "find", "index", "split", "partition", "removeprefix", "removesuffix"}
)


def is_sentence(node: ast.expr) -> bool:
    """Return whether an expression is the sentence of a reason, or of a flag."""
    if not isinstance(node, ast.Attribute):
        return isinstance(node, ast.Call) and called_name(node) == "sentence"
    owner = getattr(node.value, "attr", getattr(node.value, "id", ""))
    return node.attr in SENTENCES or (node.attr == "text" and owner in ("flag", "note", "warning"))


def makers(names: tuple[str, ...], root: Path = ROOT) -> dict[str, set[str]]:
    """Return, for each of the names, the modules that call it."""
    found: dict[str, set[str]] = {name: set() for name in names}
    for path in sorted((root / "bench_master").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if any(f"{name}(" in text for name in names) else ():
            if isinstance(node, ast.Call) and called_name(node) in found:
                found[called_name(node)].add(dotted(path.relative_to(root)))
    return found


def long_modules(modules: Mapping[str, Module]) -> list[Module]:
    """Return the modules of `ALARM_LINES` lines and more, the longest first."""
    found = [module for module in modules.values() if module.lines >= ALARM_LINES]
    return sorted(found, key=lambda module: (-module.lines, module.name))


def print_places(what: str, places: list[str], meaning: str = "") -> None:
    """Print how many places there are, and each of them."""
    print(f"{what:<15} {len(places)}{meaning}")
    for place in places:
        print(f"  {place}")


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Print the figures."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    modules = read_modules(root)
    sizes = sorted(module.lines for module in modules.values())
    folders = Counter(module.folder for module in modules.values())
    print(f"modules         {len(modules)}")
    print(f"lines           {sum(sizes)}")
    print(f"lines, median   {statistics.median(sizes):g}")
    print(f"lines, mean     {statistics.fmean(sizes):.0f}")
    for folder, count in folders.most_common(3):
        print(f"fullest folder  {count} {folder}")
    cycles = find_cycles(modules)
    print(f"import cycles   {len(cycles)}")
    for cycle in cycles:
        print(f"  {' <-> '.join(cycle)}")
    alarms = long_modules(modules)
    print(f"long modules    {len(alarms)} of {ALARM_LINES} lines and more: is each one thing?")
    for module in alarms:
        print(f"long            {module.lines} {module.name}")
    print_places("untyped header", untyped_header_accesses())
    inward = [f"{name} -> {target}" for name, target in feature_imports_of_kernel(modules)]
    print_places("kernel imports", inward, " of a feature")
    print_places("across halves", [f"{name} -> {target}" for name, target in crossings_of_halves(modules)])
    print_places("kernel names", kernel_names_of_features(root), " of features")
    for one, other in sorted(imports_between_features(modules)):
        print(f"feature imports {one} -> {other}")
    print_places("isinstance", questions_of_kind(), " of a job's kind")
    for name in FEATURES:
        print_places(name, mentions(name), " modules outside mention the feature")
    print_places("text compared", sentence_comparisons(root))
    for what, names in MAKERS.items():
        print(f"{what}: {', '.join(f'{len(who)} of {name}' for name, who in makers(names, root).items())}")
    for thing in _TELLING:
        shapes = {place: SHAPES.get(place.split()[-1], ("no level", "")) for place in shapes_of(thing, root)}
        told = [f"{place}: {level}, {what}" for place, (level, what) in shapes.items()]
        print_places(f"{thing.lower()} shapes", told, f" on {len({level for level, _ in shapes.values()})} levels")
    if "--write-imports" in arguments:
        (root / "docs" / "imports.rst").write_text(imports_page(modules), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
