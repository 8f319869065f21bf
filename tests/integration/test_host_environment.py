"""A worker's environment, made on a host of wheels: what is unpacked works, and what is missing is told."""

import subprocess
import zipfile

import pytest
from deadlines import END_S

from bench_features.fleet import wheels
from bench_features.fleet.remote_agent import RequestError, create_venv

ORDER = """
import order, sys
print(order.WORD, sys.prefix)
"""


def made(folder, name, requires=""):
    """Write a wheel of one module (PEP 427); return where it is."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    home = f"{name}-1.0.dist-info"
    content = {
        f"{name}.py": "WORD = 'here'\n",
        f"{home}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}",
        f"{home}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in content.items():
            archive.writestr(inside, text)
        archive.writestr(f"{home}/RECORD", "".join(f"{inside},,\n" for inside in (*content, f"{home}/RECORD")))
    return path


def pip():
    return wheels._bundled_pip().path


def test_an_environment_holds_what_the_wheels_hold(tmp_path):
    """Modules can be imported there; pip itself is not installed."""
    target = tmp_path / "venvs" / "one"
    create_venv(target, [made(tmp_path, "order", "pip; extra == 'more'"), pip()], [])
    message = subprocess.run(
        [target / "bin/python", "-c", ORDER], capture_output=True, text=True, check=True, timeout=END_S
    )
    assert message.stdout.split() == ["here", str(target)]
    assert "pip" not in {path.name for path in (target / "bin").iterdir()}


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        pytest.param("absent>1", "requires absent, which is not installed", marks=pytest.mark.slow),
        ("other>=2", "has requirement other>=2, but you have other 1.0"),
    ],
)
def test_missing_requirements_are_reported(tmp_path, needs, reason):
    """A package, or its version; no environment is left."""
    target = tmp_path / "venvs" / "one"
    given = [made(tmp_path, "order", needs), made(tmp_path, "other"), pip()]
    with pytest.raises(RequestError, match=f"order 1.0 {reason}"):
        create_venv(target, given, [])
    assert not target.exists()
