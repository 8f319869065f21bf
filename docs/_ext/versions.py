"""Build the site of all versions: a folder for each release and one for the working tree, and what leads to them.

    python docs/_ext/versions.py build/docs

    build/docs/index.html      leads to the newest release, or to dev as long as there is none
    build/docs/versions.html   lists all versions
    build/docs/.nojekyll       without it GitHub Pages leaves out folders such as _static
    build/docs/dev/            the documents of the working tree
    build/docs/0.1.0/          those of the tag v0.1.0, made by the program of that tag

A release is built once; the file ``.commit`` in its folder names the commit. A folder whose tag is not in this clone,
such as a shallow one, stays and is listed. All links are relative: any static host can serve the site, below any
address.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

DEV: Final = "dev"
"""The folder of the working tree."""
SPHINX: Final = ("-m", "sphinx", "-W", "--keep-going", "-n", "-q")
REPOSITORY: Final = Path(__file__).resolve().parents[2]
_RELEASE: Final = re.compile(r"\d+(\.\d+)*")
START: Final = "docs/index.html"
"""The first page of a version."""


class SiteError(Exception):
    """A version could not be built; Sphinx or git has said why."""


def build_site(repository: Path, site: Path) -> None:
    """Build the working tree, and each release that is not there yet.

    Raises:
        SiteError: a document has an error, or git cannot read a tag.

    """
    site.mkdir(parents=True, exist_ok=True)
    build(repository, site / DEV, DEV, repository / "build" / "doctrees", dict(os.environ))
    for version, commit in releases(repository).items():
        build_release(repository, version, commit, site / version)
    write_start(site)


def build(tree: Path, folder: Path, version: str, doctrees: Path, environment: dict[str, str]) -> None:
    """Build the documents of one version; ``docs/_templates`` shows its name."""
    argv = [
        sys.executable,
        *SPHINX,
        "-A",
        f"site_version={version}",
        "-d",
        str(doctrees),
        "-c",
        "docs",
        ".",
        str(folder),
    ]
    if subprocess.run(argv, cwd=tree, env=environment, check=False).returncode:  # noqa: S603
        raise SiteError(f"the documents of {version} have errors; they are above")


def releases(repository: Path) -> dict[str, str]:
    """Return the commit of each release by its version, from the tags such as v0.1.0; none outside of a clone."""
    if not (repository / ".git").exists() or shutil.which("git") is None:
        return {}
    lines = _git(repository, "tag", "--list", "v*", "--format", "%(refname:strip=2) %(objectname) %(*objectname)")
    tags = [line.split() for line in lines.decode().splitlines()]
    # An annotated tag is an object of its own, which points at the commit.
    return {words[0][1:]: words[-1] for words in tags if _RELEASE.fullmatch(words[0][1:])}


def build_release(repository: Path, version: str, commit: str, folder: Path) -> None:
    """Build the documents of a commit with the program of that commit, unless they are there."""
    stamp = folder / ".commit"
    if stamp.exists() and stamp.read_text("utf-8").strip() == commit:
        return
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="weighbridge-docs-") as name:
        tree = Path(name)
        subprocess.run(["tar", "-x", "-C", name], input=_git(repository, "archive", commit), check=True)  # noqa: S603, S607
        if not (tree / "docs" / "conf.py").exists():
            sys.stderr.write(f"v{version} has no documents that make a site; it is left out\n")
            return
        write_metadata(tree, version)
        build(tree, folder, version, tree / "doctrees", {**os.environ, "PYTHONPATH": name})
    stamp.write_text(f"{commit}\n", "utf-8")


def _git(repository: Path, *words: str) -> bytes:
    done = subprocess.run(["git", "-C", repository, *words], stdout=subprocess.PIPE, check=False)  # noqa: S603, S607
    if done.returncode:
        raise SiteError(f"git {' '.join(words)} failed; its message is above")
    return done.stdout


def write_metadata(tree: Path, version: str) -> None:
    """Write what an installation of a tree would have: the entry points by which its program finds its own parts."""
    project = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))["project"]
    info = tree / f"weighbridge-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n", "utf-8")
    lines = []
    for group, points in project.get("entry-points", {}).items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in points.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines), "utf-8")


def versions(site: Path) -> list[str]:
    """Return the versions whose folders are there: the newest release first, dev last."""
    names = {path.parents[1].name for path in site.glob(f"*/{START}")}
    found = sorted(filter(_RELEASE.fullmatch, names), key=lambda name: [int(part) for part in name.split(".")])
    return [*reversed(found), *({DEV} & names)]


def write_start(site: Path) -> None:
    """Write what stands beside the folders of the versions that are there."""
    names = versions(site)
    links = "\n".join(f'<li><a href="{name}/{START}">{name}</a></li>' for name in names)
    listed = f"<title>Weighbridge</title>\n<h1>Weighbridge: documents of each version</h1>\n<ul>\n{links}\n</ul>\n"
    head = (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    )
    (site / "versions.html").write_text(head + listed, "utf-8")
    leads = f'<meta http-equiv="refresh" content="0; url={names[0]}/{START}">\n'
    (site / "index.html").write_text(head + leads + listed, "utf-8")
    (site / ".nojekyll").touch()


def main() -> int:
    """Build the site that the command line names; return the exit code."""
    try:
        build_site(REPOSITORY, Path(sys.argv[1]).resolve())
    except SiteError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
