"""Builds the Debian package: a virtual environment in /opt/weighbridge, with what belongs to it where Debian has it.

Called as ``debian.py SOURCE WHEELS OUT EXTRAS`` with SOURCE_DATE_EPOCH set. SOURCE is the clone's files, WHEELS a
folder with the wheels of Weighbridge and of all that it needs, for the Python that runs this. The package needs that
Python's minor version (``python3.11`` on Debian 12). It starts nothing and enables nothing: a worker needs to be told
its master.
"""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from environment import HOME, PROGRAMS, PYTHON, install, run, write

COMPRESSION: Final = ("-Zxz", "-z1")
"""A format that every dpkg reads, at its quickest level: the default one needs minutes for compiled code."""
COMPLETIONS: Final = {
    "bash": "usr/share/bash-completion/completions/{}",
    "zsh": "usr/share/zsh/vendor-completions/_{}",
    "fish": "usr/share/fish/vendor_completions.d/{}.fish",
}

UNIT: Final = """\
[Unit]
Description=Weighbridge's agent on this host
Wants=network-online.target
After=network-online.target docker.service containerd.service

[Service]
EnvironmentFile=/etc/default/bench-worker
ExecStart=/usr/bin/bench-worker $WORKER_OPTIONS
Restart=on-failure
RestartPreventExitStatus=2
Delegate=yes
KillMode=mixed

[Install]
WantedBy=multi-user.target
"""
DEFAULTS: Final = """\
# Options of the agent that systemctl start bench-worker starts; bench-worker --help lists them. Without any it waits
# for a master of root on this machine. With a master elsewhere:
# WORKER_OPTIONS="--zmq-host master.example --key /etc/weighbridge/worker.key"
WORKER_OPTIONS=""
"""
POSTINST: Final = f"""\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    /{HOME}/bin/python -m compileall -q /{HOME}/lib >/dev/null || true
    if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
fi
"""
PRERM: Final = f"""\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl --quiet disable --now bench-worker.service || true
fi
if [ -d /{HOME} ]; then find /{HOME} -type d -name __pycache__ -prune -exec rm -rf {{}} +; fi
"""
POSTRM: Final = """\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
"""
COPYRIGHT: Final = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: weighbridge
Comment: The packages in /opt/weighbridge/lib have licences of their own; each has it in its .dist-info folder.

Files: *
Copyright: Weighbridge developers
License: Apache-2.0
 On Debian systems the full text of the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.
"""


def write_zipped(path: Path, text: str) -> None:
    """Write a compressed file, as Debian has changelogs, without a time in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def describe(root: Path, installed: Path, source: Path) -> None:
    """Write what belongs to the programs: links, completions, unit, licence and changelog."""
    (root / "usr/bin").mkdir(parents=True)
    for program in PROGRAMS:
        (root / "usr/bin" / program).symlink_to(f"/{HOME}/bin/{program}")
        if program == "bench-worker":
            continue  # completions are those of the master's program
        for shell, place in COMPLETIONS.items():
            write(root / place.format(program), run(installed / "bin" / program, "completion", shell))
    write(root / "usr/lib/systemd/system/bench-worker.service", UNIT)
    write(root / "etc/default/bench-worker", DEFAULTS)
    documents = root / "usr/share/doc/weighbridge"
    write(documents / "copyright", COPYRIGHT)
    write_zipped(documents / "changelog.gz", (source / "CHANGELOG.rst").read_text("utf-8"))


def control(root: Path, version: str) -> str:
    """Return the description of the package."""
    size = sum(path.lstat().st_size for path in root.rglob("*") if not path.is_symlink()) // 1024
    return f"""\
Package: weighbridge
Version: {version}
Architecture: {run("dpkg", "--print-architecture").strip()}
Maintainer: Weighbridge developers <weighbridge@localhost>
Installed-Size: {size}
Depends: {PYTHON}, libstdc++6
Recommends: openssh-client
Section: utils
Priority: optional
Description: container engines, environments and settings compared honestly
 Weighbridge measures what containers and plain processes cost, on this host or on
 others, and says which differences are real. This package has its programs with
 all Python packages that they need in /opt/weighbridge, and a systemd unit for the
 agent, which is neither enabled nor started.
"""


def build(source: Path, wheels: Path, out: Path, extras: str, epoch: int) -> Path:
    """Write the package into `out`; return its path. Its files have the time `epoch` and belong to root."""
    with tempfile.TemporaryDirectory(prefix="weighbridge-deb-") as name:
        root, installed = Path(name, "root"), Path(name, "installed")
        (root / HOME).mkdir(parents=True)
        install(root, wheels, extras)
        # What runs here to describe itself is a copy with paths of here.
        shutil.copytree(root / HOME, installed, symlinks=True)
        for script in PROGRAMS:
            path = installed / "bin" / script
            path.write_text(path.read_text().replace(f"/{HOME}/bin/", f"{installed}/bin/"))
        (installed / "bin" / "python").unlink()
        base = Path(sys.executable).resolve()
        (installed / "bin" / "python").symlink_to(base)
        write(installed / "pyvenv.cfg", f"home = {base.parent}\ninclude-system-site-packages = false\n")
        describe(root, installed, source)
        (own,) = wheels.glob("weighbridge-*.whl")
        version = own.name.split("-")[1]
        write(root / "DEBIAN/control", control(root, version))
        write(root / "DEBIAN/conffiles", "/etc/default/bench-worker\n")
        for script, text in (("postinst", POSTINST), ("prerm", PRERM), ("postrm", POSTRM)):
            write(root / "DEBIAN" / script, text, 0o755)
        root.chmod(0o755)
        for cache in [*root.rglob("__pycache__")]:
            shutil.rmtree(cache)
        for path in [root, *root.rglob("*")]:
            os.utime(path, (epoch, epoch), follow_symlinks=False)
        deb = out / f"weighbridge_{version}_{run('dpkg', '--print-architecture').strip()}.deb"
        run("dpkg-deb", "--root-owner-group", *COMPRESSION, "--build", root, deb, SOURCE_DATE_EPOCH=str(epoch))
        return deb


if __name__ == "__main__":
    os.umask(0o022)
    source, wheels, out = map(Path, sys.argv[1:4])
    print(build(source, wheels, out, sys.argv[4], int(os.environ["SOURCE_DATE_EPOCH"])).name)
