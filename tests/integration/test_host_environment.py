"""A worker's environment, made on a host of wheels: what is unpacked works, and what is missing is told."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from bench_master.fleet import wheels
from bench_master.fleet.remote_agent import RequestError, create_venv

ORDER = """
import order, sys
print(order.WORD, sys.prefix)
"""


def made(folder, name, requires=""):
    """Write a wheel of one module; return where it is."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.0.data/purelib/{name}.py", "WORD = 'here'\n")
        archive.writestr(f"{name}-1.0.data/scripts/{name}", "#!python\n")
        archive.writestr(f"{name}-1.0.data/data/etc/{name}", "x\n")
        needs = f"Requires-Dist: {requires}\n" if requires else ""
        archive.writestr(
            f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}"
        )
    return path


def pip():
    return wheels._bundled_pip().path


def test_an_environment_holds_what_the_wheels_hold(tmp_path):
    """Modules can be imported there; programs and data of packages are left out, and pip itself."""
    target = tmp_path / "venvs" / "one"
    create_venv(target, [made(tmp_path, "order", "pip; extra == 'more'"), pip()])
    message = subprocess.run(
        [target / "bin/python", "-c", ORDER], capture_output=True, text=True, check=True, timeout=30
    )
    assert message.stdout.split() == ["here", str(target)]
    assert (target / ".complete").exists()
    left = {path.name for path in target.rglob("*") if path.is_file()}
    assert "order.py" in left
    assert not {"order", "pip"} & {path.name for path in (target / "bin").iterdir()}
    assert not list(target.rglob("etc"))


@pytest.mark.parametrize(("needs", "there"), [("absent>1", "nothing"), ("other>=2", "1.0")])
def test_missing_requirements_are_reported(tmp_path, needs, there):
    """A package, or its version; the environment does not count as complete."""
    target = tmp_path / "venvs" / "one"
    given = [made(tmp_path, "order", needs), made(tmp_path, "other"), pip()]
    with pytest.raises(RequestError, match=f"order needs {needs}, there is {there}"):
        create_venv(target, given)
    assert not (Path(target) / ".complete").exists()
