"""Every command of README runs as it is written, in the folder of a fresh clone."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from deadlines import LONG_END_S
from documents import ROOT, blocks
from workspace import require_images

README = ROOT / "README.rst"
LISTED = re.findall(r"^- .*:\n  ``([^`]+)``$", README.read_text("utf-8"), re.MULTILINE)
"""The commands of the list of what it does."""
HERE = {
    "weighbridge weigh './old input' './new input'": "",
    "weighbridge run-scenario -f lifecycle": " --set scale=small",
    "script/compare-builds main HEAD './program'": " --fail-on 'slower by 500%'",
    "weighbridge run-scenario -f quickstart -i hosts.yaml": " --dry-run",
    "weighbridge archive trend": "",
}
"""What a test adds to each: sizes, a gate that chance cannot fail, and for absent hosts only the plan."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """Return a copy of what git would commit of this clone, as a repository with a branch and a commit on it."""
    folder = tmp_path_factory.mktemp("readme") / "clone"
    listed = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, capture_output=True, check=True).stdout.decode().rstrip("\0").split("\0")
    for name in names:
        source, target = ROOT / name, folder / name
        if source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    for name in ("old", "new", "program"):
        (folder / name).write_text("#!/bin/sh\nexec true\n")
        (folder / name).chmod(0o755)
    (folder / "hosts.yaml").write_text("hosts:\n  blade-1:\n  blade-2:\n")
    git = "git -c user.name=tester -c user.email=tester@example.org"
    subprocess.run(
        f"git init -q -b main && {git} add -A && {git} commit -qm one && git checkout -qb work && "
        f"{git} commit -q --allow-empty -m two",
        shell=True,
        cwd=folder,
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def environment(clone):
    """Return the environment of a shell in which README's installation has been done, from what is here already."""
    venv = clone.parent / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=LONG_END_S)
    (venv / "bin" / "pip").write_text('#!/bin/sh\nexec python -m pip "$@"\n')
    (venv / "bin" / "pip").chmod(0o755)
    # Its packages are those of the tests, so that nothing is fetched.
    site = Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))
    (site / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return {
        "PATH": f"{venv / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(clone.parent),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def shell(command, clone, environment):
    """Run a command in the clone; return its output if it ends with 0."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=clone,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONG_END_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.docker
def test_every_command_of_readme_runs(clone, environment):
    """The line that installs and weighs, and those of the list, with what each needs in the folder."""
    require_images("weighbridge/base").close()
    install, *scripts = (block.astext() for block in blocks(README, "sh"))
    printed = shell(install, clone, environment)
    assert "Engines against native" in printed
    assert "stats file: " in printed
    where = shell("python -c 'import bench_master; print(bench_master.__file__)'", clone.parent, environment)
    assert str(clone.parent / "venv") in where
    assert scripts == ["script/demo", "script/test"]
    for script in scripts:
        assert shell(f"{script} --help", clone, environment).startswith(f"Usage: {script}")
    assert list(HERE) == LISTED
    for command, sizes in HERE.items():
        if "archive" in command:
            saved = max((clone / "weighbridge-results").glob("*.stats.gz"))
            shell(f"weighbridge archive add {saved}", clone, environment)
        assert shell(command + sizes, clone, environment)
