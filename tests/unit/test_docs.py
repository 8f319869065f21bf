"""What README and docs/ say is so: they are valid, and their names, tables, commands and links are the program's."""

import ast
import re
import shlex
import shutil
from functools import cache

import pytest
from documents import DOCUMENTS, ROOT, literals, rows, tree
from docutils import nodes
from sources import imports, syntax

from bench_common.argument_types import CONTROL_PORT, RESULTS_PORT, WORK_PORT
from bench_common.engine_traits import engine_names
from bench_common.errors import ExitCode
from bench_common.treatment import OPERATIONS
from bench_master.cli import build_parser
from bench_master.scenario.format import scenario_format
from bench_worker.cli import build_parser as build_worker_parser

README = ROOT / "README.rst"
ARCHITECTURE = ROOT / "docs" / "architecture.rst"
GUIDE = ROOT / "docs" / "user-guide.rst"
PACKAGES = ("bench_common", "bench_features", "bench_master", "bench_worker", "weighbridge", "bench_workloads")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]

documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
sources = pytest.mark.parametrize("package", PACKAGES)


# -- form -------------------------------------------------------------------------------------------------------


@documents
def test_every_document_is_valid(document):
    """docutils has no warning, so that package indexes and code hosts render it."""
    assert tree(document).astext()


@documents
def test_every_document_has_one_title(document):
    """All sections are below it: with several of its level, each would be a page of its own in a navigation."""
    assert tree(document).get("title")


@documents
def test_every_link_leads_somewhere(document):
    """Each relative link names a file of the repository, and a section that is there."""
    links = [node["refuri"] for node in tree(document).findall(nodes.reference) if "refuri" in node]
    assert [link for link in links if "://" not in link and not leads_somewhere(document, link)] == []


def leads_somewhere(document, link):
    """Whether the file that a link of a document names is there, and the section if it names one."""
    name, _, section = link.partition("#")
    path = (document.parent / name).resolve()
    if not path.exists() or not section:
        return path.exists()
    return any(section in node["ids"] for node in tree(path).findall(nodes.Element))


def test_a_link_to_a_section_that_is_gone_would_be_found():
    """The check above knows files and sections."""
    assert leads_somewhere(README, "docs/user-guide.rst#gates")
    assert not leads_somewhere(README, "docs/user-guide.rst#no-such-section")
    assert not leads_somewhere(README, "docs/no-such-file.rst")


def test_every_document_is_in_the_index():
    """docs/index.rst, to which README leads, leads to each page of docs/."""
    index = ROOT / "docs" / "index.rst"
    linked = {
        (index.parent / node["refuri"]).resolve()
        for node in tree(index).findall(nodes.reference)
        if "://" not in node.get("refuri", "://")
    }
    missing = [path.name for path in DOCUMENTS if path.parent == index.parent and path not in {*linked, index}]
    assert missing == []


@documents
def test_every_path_that_is_named_exists(document):
    """An inline literal that looks like a path of the repository is one."""
    tops = {path.name for path in ROOT.iterdir()} - {".venv", "build"}
    named = [text for text in literals(document) if re.fullmatch(r"[\w.]+(/[\w.-]+)+/?", text)]
    # Images are named like a folder of ours.
    images = {f"weighbridge/{path.name}" for path in (ROOT / "dockerfiles").iterdir()}
    missing = [text for text in named if text.split("/")[0] in tops and not (ROOT / text).exists()]
    assert [text for text in missing if text not in images] == []


# -- commands ---------------------------------------------------------------------------------------------------


@cache
def subcommands():
    """Return the sub-commands' parsers by name, and the flags that stand before them."""
    parser = build_parser()
    action = next(action for action in parser._actions if isinstance(action.choices, dict))
    return action.choices, set(parser._option_string_actions)


@cache
def worker_flags():
    """Return the flags of the worker."""
    return set(build_worker_parser()._option_string_actions)


def mentions(document):
    """Yield what is said of our programs: the program and the words after it, up to the end of the command."""
    texts = [line for block in tree(document).findall(nodes.literal_block) for line in block.astext().splitlines()]
    for text in [*texts, *literals(document)]:
        for match in re.finditer(
            r"\b(bench-master|bench-worker)(?![\w-]*\.)((?: +(?:'[^']*'|[^\s|;&()`#>])+)*)", text
        ):
            # A word in quotes is somebody else's command line.
            yield match[1], re.findall(r"'[^']*'|\S+", match[2])


def refused(program, words):
    """Return why the words after a program's name are none that it knows, or None."""
    commands, before = subcommands()
    known = worker_flags() if program == "bench-worker" else before
    name = None
    for word in words:
        if word == "--":
            break  # what follows is another program's
        if word.startswith("-") and len(word) > 1:
            if word.split("=")[0] not in known:
                return f"{program} {name or ''} has no {word}"
        elif program == "bench-master" and name is None and re.fullmatch(r"[a-z][a-z-]+", word):
            if word not in commands:
                return f"bench-master has no {word}"
            name, known = word, before | set(commands[word]._option_string_actions)
            members = commands[word].sub_commands()
        elif program == "bench-master" and name is not None and members:
            if word in members:
                name, known, members = f"{name} {word}", before | set(members[word]._option_string_actions), {}
            elif re.fullmatch(r"[a-z][a-z-]+", word):
                return f"bench-master {name} has no {word}"
    return None


@documents
def test_every_command_and_flag_exists(document):
    """Each sub-command and flag that is written after a program's name is one of its parser's."""
    assert [why for program, words in mentions(document) if (why := refused(program, words))] == []


def test_a_wrong_flag_would_be_found():
    """The check above knows the sub-commands apart, and does not take a flag of one for that of another."""
    assert refused("bench-master", ["run-scenario", "-f", "x", "--noop"]) is None
    assert refused("bench-master", ["report-scenario", "--noop"]) == "bench-master report-scenario has no --noop"
    assert refused("bench-master", ["archive", "list", "--host", "x"]) is None
    assert refused("bench-master", ["archive", "list", "--dry-run"]) == "bench-master archive list has no --dry-run"
    assert refused("bench-master", ["archive", "lst"]) == "bench-master archive has no lst"
    assert refused("bench-master", ["run-scenari"]) == "bench-master has no run-scenari"
    assert refused("bench-worker", ["--zmq-host", "h", "--nonsense"]) == "bench-worker  has no --nonsense"


@documents
def test_a_flag_that_stands_alone_exists(document):
    """An inline literal that begins with two dashes is a flag of one of our programs or scripts.

    In the first column of a page that leads here from another program it is one of that program.
    """
    commands, before = subcommands()
    known = before | worker_flags()
    members = [member for parser in commands.values() for member in parser.sub_commands().values()]
    known |= {flag for parser in (*commands.values(), *members) for flag in parser._option_string_actions}
    folders = [ROOT / "script", *([ROOT / "benchmarks"] if document.parent.name == "benchmarks" else [])]
    scripts = "".join(path.read_text() for folder in folders for path in folder.iterdir() if path.is_file())
    known |= set(re.findall(r"--[a-z-]+", scripts)) | {"--report-checkpoints"}  # the last one is sysbench's
    if document.name == "moving.rst":
        first = " ".join(line.split("  ")[0] for line in document.read_text().splitlines())
        known |= set(re.findall(r"``(--[a-z0-9.-]+)``", first))
    alone = [shlex.split(text)[0].split("=")[0] for text in literals(document) if re.match(r"--[a-z]", text)]
    assert [flag for flag in alone if flag not in known] == []


def test_the_messages_to_look_up_are_the_programs_own():
    """Each message of the troubleshooting table stands, word for word, in the code."""
    code = "\n".join(path.read_text("utf-8") for path in SOURCES)
    words = [row[0] for row in rows(GUIDE, "message")]
    assert len(words) > 5
    unknown = [text for text in words if text.replace("engine docker", "engine {treatment.engine}") not in code]
    assert [text for text in unknown if "a stats file expected" not in text] == []


def test_the_exit_codes_are_the_programs_own():
    """The table of the user guide has each exit code, and no other."""
    table = next(table for table in tree(GUIDE).findall(nodes.table) if table.astext().lstrip().startswith("0"))
    assert {int(row[0].astext()) for row in table.findall(nodes.row)} == set(map(int, ExitCode))


# -- scenario keys ------------------------------------------------------------------------------------------------


@documents
def test_every_scenario_key_that_is_written_out_exists(document):
    """A dotted key such as ``container.init`` or ``container.log_driver`` is one of the format's."""
    fields = {field.name for field in scenario_format().container.fields}
    written = {text for text in literals(document) for text in re.findall(r"^container\.(\w+)(?=$|[:. ])", text)}
    assert written <= fields


@documents
def test_every_example_of_a_scenario_uses_known_keys(document):
    """Keys at the left margin of a YAML example, and operations in it, are the format's."""
    form = scenario_format()
    known = {field.name for record in (form.scenario, form.job, form.container) for field in record.fields}
    for block in tree(document).findall(nodes.literal_block):
        if "yaml" not in block.get("classes", ()):
            continue
        keys = re.findall(r"^(\w+):", block.astext(), flags=re.MULTILINE)
        assert [key for key in keys if key not in known] == []
        for listed in re.findall(r"operations: \[(.+)\]$", block.astext(), flags=re.MULTILINE):
            words = re.findall(r"(?:^|, )([a-z]+)", listed)
            assert [word for word in words if word not in OPERATIONS] == []


# -- protocol -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("port", [CONTROL_PORT, RESULTS_PORT, WORK_PORT])
@pytest.mark.parametrize("document", [ARCHITECTURE, GUIDE], ids=lambda path: path.name)
def test_the_ports_are_those_of_the_code(document, port):
    """Guide and architecture name the ports that have to be open."""
    assert str(port) in tree(document).astext()


# -- architecture -------------------------------------------------------------------------------------------------

ALLOWED = {
    "bench_common": {"bench_common"},
    "bench_workloads": {"bench_workloads", "bench_common"},
    "bench_master": {"bench_master", "bench_common", "bench_workloads"},
    "bench_worker": {"bench_worker", "bench_common", "bench_workloads"},
    "bench_features": {"bench_features", "bench_common", "bench_master", "bench_worker", "bench_workloads"},
    "weighbridge": {"weighbridge", "bench_common", "bench_master"},
}
ENGINES = {"bench_worker.engines.cost_group", "bench_worker.engines.noop"}
"""What of bench_worker/engines others may import beside base and registry: no engine that is weighed is among it."""


@sources
def test_packages_import_only_what_they_may(package):
    """Master and worker never import each other, and what they share imports neither."""
    for path in (ROOT / package).rglob("*.py"):
        ours = {name.split(".")[0] for name in imports(path)} & {*PACKAGES, "tests", "benchmarks"}
        assert ours <= ALLOWED[package], path


@sources
def test_nothing_is_imported_by_a_name_that_the_wheel_does_not_have(package):
    """The folders of workloads and of data are found in a clone by their own names, too, and nowhere else."""
    for path in (ROOT / package).rglob("*.py"):
        assert not {name.split(".")[0] for name in imports(path)} & {"dockerfiles", "scenarios", "workloads"}, path


def test_the_table_of_imports_is_the_one_that_is_enforced():
    """docs/architecture.rst says what the test above checks."""
    table = rows(ARCHITECTURE, "package", "may import")
    documented = {name: set(what.replace("itself", name).split(", ")) for name, what in table}
    assert documented == ALLOWED


@sources
def test_no_engine_and_no_workload_is_imported_by_name(package):
    """Engines and workloads are found through their registries, so that those of others are equals."""
    for path in (ROOT / package).rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith("bench_worker/engines/"):
            inside = {found for found in imports(path) if found.startswith("bench_worker.engines.")}
            modules = {".".join(found.split(".")[:3]) for found in inside}
            assert modules <= {"bench_worker.engines.base", "bench_worker.engines.registry", *ENGINES}, path
        if not name.startswith("bench_workloads/"):
            inside = {found for found in imports(path) if found.startswith("bench_workloads.")}
            modules = {".".join(found.split(".")[:2]) for found in inside}
            assert modules <= {
                f"bench_workloads.{part}" for part in ("base", "guest", "metric_sources", "registry", "script")
            }, path


def test_the_master_has_no_engines_name():
    """What the master knows of an engine is data of its registry, so that an engine is added without the master."""
    names, found = set(engine_names()), set()
    quoted = re.compile(f"[\"'](?:{'|'.join(map(re.escape, names))})[\"']")
    for path in [*(ROOT / "bench_master").rglob("*.py"), *(ROOT / "bench_common").rglob("*.py")]:
        if not quoted.search(path.read_text("utf-8")):
            continue
        words = {node.value for node in ast.walk(syntax(path)) if isinstance(node, ast.Constant)}
        if words & names:
            found.add(path.relative_to(ROOT).as_posix())
    assert found == set()


def test_gevent_patches_in_the_two_entry_points_alone():
    """A module that is imported changes nothing of the interpreter."""
    patching = [path.relative_to(ROOT).as_posix() for path in SOURCES if "patch_all()" in path.read_text("utf-8")]
    assert patching == ["bench_master/__main__.py", "bench_worker/__main__.py"]


@sources
def test_pure_modules_import_no_socket_clock_or_disk(package):
    """The state machines import nothing that could wait, nothing that tells the time, and no module of the shell."""
    shell = {"time", "socket", "os", "gevent", "zmq", "threading", "pathlib", "subprocess", "asyncio", "random"}
    core = {
        "bench_master": [
            *(ROOT / "bench_master/coordinator").glob("*.py"),
            *(ROOT / f"bench_master/run/{name}.py" for name in ("preflight", "remote_services", "resume_state")),
        ],
        "bench_worker": [ROOT / "bench_worker/job.py"],
    }
    for path in core.get(package, ()):
        names = imports(path)
        assert not {name.split(".")[0] for name in names} & shell, path
        assert not {name for name in names if name.startswith("bench_master.run.")}, path


def test_nothing_is_left_to_do_in_a_comment():
    """What is missing is said in the documentation, where users see it."""
    word = re.compile("TO" + "DO|FIX" + "ME|XX" + "X")
    assert [path.name for path in SOURCES if word.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize("document", [GUIDE, ROOT / "docs" / "stats-file.rst"], ids=["user-guide", "stats-file"])
def test_examples_in_python_run(document, tmp_path, monkeypatch):
    """With the stats file of a recorded run under the name that they have for one."""
    shutil.copy(ROOT / "docs" / "data" / "quickstart.stats.gz", tmp_path)
    monkeypatch.chdir(tmp_path)
    found = [block.astext() for block in tree(document).findall(nodes.literal_block) if "python" in block["classes"]]
    assert found
    for text in found:
        exec(text, {})
