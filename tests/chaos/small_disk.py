"""A disk of 64 KiB, and how to fill one."""

import contextlib
import os
import subprocess

from deadlines import END_S
from workspace import skip_or_fail


@contextlib.contextmanager
def mounted_disk(folder):
    """Give a new folder with a file system of 64 KiB."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, timeout=END_S, check=False).returncode:
        skip_or_fail("a tmpfs can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, timeout=END_S, check=True)


def fill(path):
    """Write a file that takes what space there is left."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
