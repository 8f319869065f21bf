"""A small disk, and how to fill one."""

import contextlib
import os
import subprocess

from deadlines import END_S
from workspace import skip_or_fail


@contextlib.contextmanager
def mounted_disk(folder, size="64k"):
    """Give a folder, made where it is not there, with a file system of its own."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, timeout=END_S, check=False).returncode:
        skip_or_fail("a tmpfs can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, timeout=END_S, check=False)


def fill(path):
    """Write a file that takes what space there is left."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
