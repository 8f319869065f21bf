"""A release: the same commit gives the same bytes, and what it makes is complete and installs without a network."""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from busybox_image import skip_or_fail
from deadlines import BUILD_S, LONG_END_S, LONG_TEST_S, SLOW_BUILD_S, SLOW_TEST_S
from places import ROOT
from private_engine import private_engine

from bench_common import __version__
from bench_worker.images.base_image import base_tarball, build_lock, cache_folder, choose_source, host_arguments

PACKAGES = ROOT / "script" / "packages" / "python_packages.py"
EPOCH = 1_700_000_000
NAMES = {f"weighbridge-{__version__}.tar.gz", f"weighbridge-{__version__}-py3-none-any.whl"}

pytestmark = pytest.mark.timeout(LONG_TEST_S)


def shell(*words, deadline_s=LONG_END_S, **environment):
    """Run a program; its output is in the error if it fails."""
    done = subprocess.run(
        [*map(str, words)],
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
        env={**os.environ, **environment},
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def export(folder):
    """Write the files that git knows, as they are here, into a new folder."""
    names = shell("git", "ls-files", "-z").split("\0")
    for name in filter(None, names):
        source, target = ROOT / name, folder / name
        if name.startswith(("tests/", "docs/")) or not (source.exists() or source.is_symlink()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
    return folder


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The source distribution and the wheel of this clone, by their names' ends."""
    folder = tmp_path_factory.mktemp("packages")
    made = build(export(folder / "source"), folder / "out")
    return {path.suffix: path for path in made}


def build(source, out):
    out.mkdir()
    shell(sys.executable, PACKAGES, source, out, deadline_s=BUILD_S, SOURCE_DATE_EPOCH=str(EPOCH), WEIGHBRIDGE_URL="")
    assert {path.name for path in out.iterdir()} == NAMES
    return sorted(out.iterdir())


def test_two_builds_are_the_same_to_the_byte(packages, tmp_path):
    """From another folder, with other times and modes of files."""
    source = export(tmp_path / "elsewhere" / "clone")
    for path in source.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (1, 2_000_000_000))
            path.chmod(0o700 if path.is_dir() or path.stat().st_mode & 0o100 else 0o600)
    for path in build(source, tmp_path / "out"):
        assert path.read_bytes() == packages[path.suffix].read_bytes(), path.name


def test_the_source_distribution_builds_and_tells_what_changed(packages):
    """It has the build's own files, the licence and the changelog, and one time for all of them."""
    with tarfile.open(packages[".gz"]) as archive:
        members = archive.getmembers()
    names = {member.name.partition("/")[2] for member in members}
    assert {"pyproject.toml", "setup.py", "README.rst", "CHANGELOG.rst", "LICENSE"} <= names
    assert {member.mtime for member in members} == {EPOCH}
    assert {(member.uid, member.gid, member.uname) for member in members} == {(0, 0, "")}


def test_the_wheel_of_the_source_distribution_has_every_file_of_the_clone(packages):
    """Also those that are no code: a source distribution loses what its list forgets."""
    with zipfile.ZipFile(packages[".whl"]) as archive:
        inside = set(archive.namelist())
    for package, folder in (("bench_scenarios", "scenarios"), ("bench_dockerfiles", "dockerfiles")):
        tracked = shell("git", "ls-files", folder).split()
        here = [name for name in tracked if (ROOT / name).is_file()]
        assert {name.replace(folder, package, 1) for name in here} <= inside


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The folder of a whole release of the last commit: without what cannot be built on this machine."""
    if shutil.which("git") is None:
        skip_or_fail("git is missing")
    kinds = (["deb"] if shutil.which("dpkg-deb") else []) + (["image"] if os.geteuid() == 0 else [])
    out = tmp_path_factory.mktemp("release")
    shell(ROOT / "script" / "release", "--out", out, *kinds, deadline_s=SLOW_BUILD_S, PYTHON=sys.executable)
    return out


def only(folder, pattern):
    """Return the one file of that name; skip where it cannot be built."""
    found = [*folder.glob(pattern)]
    if not found:
        skip_or_fail(f"{pattern} takes root and dpkg-deb")
    (path,) = found
    return path


@pytest.mark.slow
@pytest.mark.timeout(SLOW_TEST_S)
def test_a_release_has_its_packages_an_sbom_and_their_sums(release):
    """The SBOM names the version and each package that the wheel asks for, with its version and address."""
    sbom = release / f"weighbridge-{__version__}.cdx.json"
    assert {path.name for path in release.iterdir()} >= {*NAMES, sbom.name, "SHA256SUMS"}
    lines = [line.split() for line in (release / "SHA256SUMS").read_text().splitlines()]
    sums = {name: digest for digest, name in lines}
    assert {*sums, "SHA256SUMS"} == {path.name for path in release.iterdir()}
    assert all(hashlib.sha256((release / name).read_bytes()).hexdigest() == digest for name, digest in sums.items())
    document = json.loads(sbom.read_text())
    assert document["bomFormat"] == "CycloneDX"
    assert document["metadata"]["component"]["version"] == __version__
    with zipfile.ZipFile(release / f"weighbridge-{__version__}-py3-none-any.whl") as archive:
        metadata = archive.read(f"weighbridge-{__version__}.dist-info/METADATA").decode()
    needed = re.findall(r"^Requires-Dist: ([A-Za-z0-9_.-]+)(?![^\n]*extra ==)", metadata, re.MULTILINE)
    listed = {each["purl"].partition("@")[0].removeprefix("pkg:pypi/") for each in document["components"]}
    assert {name.lower().replace("_", "-") for name in needed} <= listed
    assert all(each["version"] for each in document["components"])
    assert str(release) not in sbom.read_text()


IN_ROOT = """
set -e
dpkg --install /tmp/weighbridge.deb
cd /tmp
weighbridge weigh -r 5 true
bench-worker --version
test -f /usr/lib/systemd/system/bench-worker.service
dpkg --purge weighbridge
test ! -e /opt/weighbridge
test ! -e /etc/default/bench-worker
test ! -e /usr/bin/weighbridge
echo purged
"""


@pytest.mark.slow
@pytest.mark.timeout(SLOW_TEST_S)
def test_the_debian_package_installs_weighs_and_purges_without_a_network(release, tmp_path):
    """In a root that has Debian's base system and its Python, and nothing of this machine."""
    if os.geteuid() != 0:
        skip_or_fail("the root of a test takes root")
    deb = only(release, "weighbridge_*.deb")
    recipe = ROOT / "dockerfiles" / "base"
    source = choose_source(recipe)
    if source.suite != "bookworm" or sys.version_info[:2] != (3, 11):
        skip_or_fail(f"the package for this Python is not installable on {source.suite}")
    with build_lock(cache_folder(), print):
        tarball, _ = base_tarball(cache_folder(), recipe, source, print)
    root = tmp_path / "root"
    root.mkdir()
    shell("tar", "-xzf", tarball, "-C", root, deadline_s=BUILD_S)
    shutil.copy2("/etc/resolv.conf", root / "etc" / "resolv.conf")
    arguments = host_arguments(recipe)
    apt = ["chroot", root, "apt-get", "-qq", *arguments.pop("APT_OPTIONS", "").split()]
    shell(*apt, "update", deadline_s=BUILD_S, **arguments)
    shell(*apt, "install", "--yes", "--no-install-recommends", "python3.11", deadline_s=BUILD_S, **arguments)
    shutil.copy2(deb, root / "tmp" / "weighbridge.deb")
    spaces = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount", f"--mount-proc={root}/proc"]
    printed = shell(*spaces, "chroot", root, "sh", "-c", IN_ROOT, deadline_s=BUILD_S, LC_ALL="C", HOME="/root")
    assert "5 done, 0 failed" in printed
    assert f"weighbridge {__version__}" in printed
    assert printed.endswith("purged\n")


@pytest.mark.slow
@pytest.mark.timeout(SLOW_TEST_S)
def test_the_image_has_what_its_manifest_says(release):
    """Each blob has the digest that names it, the layer unpacks to the one of the configuration, and all are used."""
    with tarfile.open(only(release, "weighbridge-*-image-*.tar")) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive}
    blobs = {name.rpartition("/")[2]: files.pop(name) for name in [*files] if name.startswith("blobs/sha256/")}
    assert all(hashlib.sha256(content).hexdigest() == digest for digest, content in blobs.items())
    assert set(files) == {"oci-layout", "index.json", "manifest.json"}
    for entry in json.loads(files["index.json"])["manifests"]:
        digest = entry["digest"].removeprefix("sha256:")
        manifest = json.loads(blobs[digest])
        (layer,) = manifest["layers"]
        config = manifest["config"]["digest"].removeprefix("sha256:")
        assert {digest, config, layer["digest"].removeprefix("sha256:")} == set(blobs)
    content = gzip.decompress(blobs[layer["digest"].removeprefix("sha256:")])
    said = json.loads(blobs[config])
    assert said["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    assert said["config"]["Labels"]["org.opencontainers.image.version"] == __version__
    (names,) = json.loads(files["manifest.json"])
    assert names["RepoTags"] == [f"weighbridge/weighbridge:{__version__}", "weighbridge/weighbridge:latest"]


@pytest.mark.slow
@pytest.mark.timeout(SLOW_TEST_S)
def test_the_image_weighs_containers_of_the_engine_whose_socket_it_has(release, monkeypatch, tmp_path):
    """Its entry point is the master, which starts its own worker; the stats file is in the directory that it gets."""
    archive = only(release, "weighbridge-*-image-*.tar")
    with private_engine(monkeypatch) as (engine, image):
        assert f"weighbridge/weighbridge:{__version__}" in shell("docker", "load", "-i", archive, deadline_s=BUILD_S)
        socket = engine.address.removeprefix("unix://")
        ours = ("run", "--rm", "-v", f"{socket}:/var/run/docker.sock", "-v", f"{tmp_path}:/work")
        words = ("weigh", "-r", "3", "--image", image, "docker", "--", "true")
        for count, more in enumerate((["--pid=host"], []), start=1):
            printed = shell("docker", *ours, *more, "weighbridge/weighbridge", *words)
            assert "3 done, 0 failed" in printed
            assert "bench_worker (process" not in printed  # its own processes are none that took time from it
            assert len([*tmp_path.glob("weighbridge-results/true.*.stats.gz")]) == count
        # containerd and its containers read what the worker writes, by the same path.
        beneath = f"{engine.folder}/exec/containerd/containerd.sock:/run/containerd/containerd.sock"
        more = ("-v", beneath, "-v", "/run/weighbridge:/run/weighbridge")
        both = ("weigh", "-r", "3", "--image", image, "docker", "containerd", "--", "true")
        assert "6 done, 0 failed" in shell("docker", *ours, *more, "weighbridge/weighbridge", *both)
        worker = ("--entrypoint", "bench-worker", "weighbridge/weighbridge", "--version")
        assert __version__ in shell("docker", *ours, *worker)
        assert shell("docker", "ps", "--all", "--quiet") == ""


@pytest.mark.slow
@pytest.mark.timeout(SLOW_TEST_S)
def test_each_way_to_install_is_timed(release, monkeypatch):
    """Each weighs in the end; the table has its seconds and what it takes on disk, and nothing of it stays."""
    only(release, "weighbridge_*.deb")
    only(release, "weighbridge-*-image-*.tar")
    script = ROOT / "script" / "packages" / "install_paths.py"
    with private_engine(monkeypatch):
        printed = shell(sys.executable, script, ROOT, release, deadline_s=SLOW_BUILD_S, PYTHONPATH=str(ROOT))
        assert "weighbridge/weighbridge" not in shell("docker", "image", "ls")
    rows = dict(re.findall(r"^(\w+) +\d+\.\d s +(\d+) MB$", printed, re.MULTILINE))
    assert list(rows) == ["pip", "pipx", "uvx", "deb", "image"], printed
    assert min(map(int, rows.values())) > 10


@pytest.fixture(scope="module")
def installers(tmp_path_factory):
    """The folder of the programs pipx and uv, in an environment of their own."""
    venv = tmp_path_factory.mktemp("installers") / "venv"
    shell(sys.executable, "-m", "venv", venv)
    shell(venv / "bin" / "pip", "install", "--quiet", "pipx", "uv", deadline_s=BUILD_S)
    return venv / "bin"


def clean_home(folder, *path):
    """Return the environment of a user that has nothing yet, and whose search path begins with some folders."""
    home = folder / "home"
    home.mkdir()
    kept = {
        name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "PIPX_", "UV_", "XDG_"))
    }
    return {
        **kept,
        "HOME": str(home),
        "PATH": os.pathsep.join([*map(str, path), "/usr/local/bin:/usr/bin:/bin"]),
        "PIPX_DEFAULT_PYTHON": sys.executable,
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NATIVE_TLS": "true",  # the certificates of this system, as pip has them
    }


def as_user(environment, folder, *words):
    """Run a program as the user of a clean home; return what it prints."""
    done = subprocess.run(
        [*map(str, words)],
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
        env=environment,
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_pipx_installs_the_wheel_and_its_programs_weigh(packages, installers, tmp_path):
    """All three programs are where pipx has the user's, and nothing is left of them after its uninstall."""
    user = clean_home(tmp_path, installers)
    as_user(user, tmp_path, "pipx", "install", packages[".whl"])
    programs = tmp_path / "home" / ".local" / "bin"
    assert {path.name for path in programs.iterdir()} == {"weighbridge", "bench-master", "bench-worker"}
    printed = as_user(user, tmp_path, programs / "weighbridge", "weigh", "-r", "3", "native", "--", "true")
    assert "3 done, 0 failed" in printed
    as_user(user, tmp_path, "pipx", "uninstall", "weighbridge")
    assert [*programs.iterdir()] == []


@pytest.mark.slow
def test_uvx_runs_a_weigh_from_the_wheel(packages, installers, tmp_path):
    """In one command, without an installation that stays."""
    user = clean_home(tmp_path, installers)
    words = ("--from", packages[".whl"], "weighbridge", "weigh", "-r", "3", "native", "--", "true")
    assert "3 done, 0 failed" in as_user(user, tmp_path, "uvx", *words)
    assert not (tmp_path / "home" / ".local" / "bin").exists()


def test_a_version_that_another_commit_released_is_refused(tmp_path):
    """Two different wheels with one version never exist; the message says where to raise it.

    The address that the packages will name is told before.
    """
    clone = tmp_path / "clone"
    shell("git", "clone", "--quiet", "--shared", ROOT, clone)
    git = ("git", "-C", clone, "-c", "user.name=t", "-c", "user.email=t@example.org")
    shell(*git, "tag", f"v{__version__}")
    shell(*git, "commit", "--quiet", "--allow-empty", "-m", "later")
    refused = subprocess.run(
        [clone / "script" / "release", "--out", tmp_path / "dist"],
        env={**os.environ, "WEIGHBRIDGE_URL": "https://code.example/weighbridge"},
        capture_output=True,
        text=True,
        timeout=LONG_END_S,
        check=False,
    )
    assert refused.returncode == 2
    assert ", repository https://code.example/weighbridge\n" in refused.stderr
    assert f"version {__version__} was released from commit" in refused.stderr
    assert "raise __version__ in bench_common/__init__.py" in refused.stderr
    assert list((tmp_path / "dist").iterdir()) == []
