"""The wheel: what is in it, and that it works where nothing but itself and its requirements are installed."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import PurePosixPath

import pytest
from deadlines import BUILD_S, LONG_END_S, LONG_TEST_S
from documents import ROOT
from docutils import nodes
from docutils.core import publish_doctree

from bench_features.fleet.wheels import PythonPlatform, Wheelhouse

OWNED = {
    *("bench_common", "bench_features", "bench_master", "bench_worker", "weighbridge"),
    *("bench_dockerfiles", "bench_scenarios", "bench_workloads"),
}
"""The names that Weighbridge takes among everything that is installed in an environment."""
SOURCES = (
    *sorted(OWNED),
    "dockerfiles",
    "scenarios",
    "workloads",
    "pyproject.toml",
    "setup.py",
    "README.rst",
    "LICENSE",
)

pytestmark = pytest.mark.timeout(LONG_TEST_S)


def build(folder, **environment):
    """Build the wheel from a copy of the clone, without network, and return its path."""
    clone = folder / "clone"
    clone.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_symlink():
            (clone / name).symlink_to(source.readlink())
        elif source.is_dir():
            shutil.copytree(source, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, clone / name)
    words = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--wheel-dir",
        folder / "dist",
        clone,
    ]
    pip(*words, env={**os.environ, **environment})
    (wheel,) = (folder / "dist").glob("weighbridge-*.whl")
    return wheel


def pip(*words, env=None):
    """Run pip; its output is in the error if it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this clone."""
    return build(tmp_path_factory.mktemp("wheel"), WEIGHBRIDGE_URL="")


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of programs of a new environment that has the wheel and its requirements, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    requirements = [each.path for each in Wheelhouse(folder / "cache").bundle_for(PythonPlatform.current()).wheels]
    (folder / "wheels").mkdir()
    for path in [wheel, *(path for path in requirements if not path.name.startswith("weighbridge-"))]:
        shutil.copy2(path, folder / "wheels")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=LONG_END_S)
    pip(
        "--python",
        venv / "bin" / "python",
        "install",
        "--quiet",
        "--no-index",
        "--find-links",
        folder / "wheels",
        "weighbridge",
    )
    return venv / "bin"


def run(installed, folder, *words):
    """Run a program of that environment, which sees nothing of this one, and no network if root runs the tests."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    without_network = ["unshare", "--net"] if os.geteuid() == 0 else []
    command = [*without_network, str(installed / words[0]), *words[1:]]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=LONG_END_S, check=False, env=environment
    )


def metadata(wheel):
    """Return the metadata of a wheel as a message, whose payload is the page of an index."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def test_the_wheel_takes_no_name_that_another_project_may_own(wheel):
    """All that it installs at the top has names of ours: no ``scenarios``, no ``workloads``."""
    with zipfile.ZipFile(wheel) as archive:
        tops = {PurePosixPath(name).parts[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == OWNED


def test_the_wheel_has_every_file_that_is_read_beside_the_code(wheel):
    """Ready-made scenarios with their published figures, recipes of images with their programs, pages."""
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    expected = set()
    for name in ("scenarios", "dockerfiles"):
        files = [path for path in (ROOT / name).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        expected |= {f"bench_{path.relative_to(ROOT).as_posix()}" for path in files}
    for folder in ("bench_master/reports/templates", "bench_features"):
        files = [path for path in (ROOT / folder).rglob("*") if {"templates", "pages"} & set(path.parts)]
        expected |= {path.relative_to(ROOT).as_posix() for path in files if path.is_file()}
    expected = {name for name in expected if not name.endswith(".pyc")}
    assert expected - inside == set()
    assert {"bench_scenarios/quickstart.yaml", "bench_dockerfiles/base/Dockerfile"} <= inside


@pytest.mark.parametrize("url", ["", "https://code.example/weighbridge"])
def test_the_page_of_an_index_has_no_link_that_leads_nowhere(url, wheel, tmp_path):
    """Links to files of the repository are absolute where its address is known, and plain text where it is not."""
    page = metadata(build(tmp_path, WEIGHBRIDGE_URL=url) if url else wheel)
    assert page["Author"] == "Weighbridge developers"
    assert page["Description-Content-Type"].startswith("text/x-rst")
    tree = publish_doctree(page.get_payload(), settings_overrides={"halt_level": 2, "report_level": 5})
    links = [node["refuri"] for node in tree.findall(nodes.reference) if "refuri" in node]
    assert [link for link in links if not re.match("https?://", link)] == []
    assert bool([link for link in links if link.startswith(f"{url}/blob/main/docs/")]) == bool(url)
    assert (page.get_all("Project-URL") or []) == (
        [f"Source, {url}", f"Changes, {url}/blob/main/CHANGELOG.rst"] if url else []
    )


def test_an_installed_wheel_weighs(installed, tmp_path):
    """By the package's own name, without a clone, a network or an engine."""
    done = run(installed, tmp_path, "weighbridge", "weigh", "native", "--repeats", "2", "--", "true")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "native" in done.stdout


def test_the_program_has_two_names(installed, tmp_path):
    """Its help, its errors and the commands that it advises use the one by which it was called."""
    for name in ("weighbridge", "bench-master"):
        done = run(installed, tmp_path, name, "--help")
        assert done.returncode == 0
        assert done.stdout.startswith(f"usage: {name} ")
        assert f"  {name} weigh docker native -- sleep 1" in done.stdout
        refused = run(installed, tmp_path, name, "weigh", "dokcer", "--", "true")
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"{name}: ") or f"usage: {name} " in refused.stderr, refused.stderr
        weighed = run(installed, tmp_path, name, "weigh", "native", "-r", "1", "-w", "0", "--", "true")
        assert f"\nreport again: {name} report-scenario -s " in weighed.stderr
    assert run(installed, tmp_path, "bench-worker", "--help").stdout.startswith("usage: bench-worker ")


def test_an_installed_wheel_finds_what_comes_with_it(installed, tmp_path):
    """Ready-made scenarios, workloads and the recipes of images."""
    assert "quickstart" in run(installed, tmp_path, "weighbridge", "list", "scenarios").stdout
    assert "sysbench-cpu" in run(installed, tmp_path, "weighbridge", "list", "workloads").stdout
    recipes = "from bench_worker.images.build import all_recipes; print(*all_recipes())"
    assert "sysbench" in run(installed, tmp_path, "python", "-c", recipes).stdout.split()
