"""Where a secret must not be: in the arguments of processes, in files that a run leaves."""

import contextlib
import gzip
import math
import os
import re
import threading
from pathlib import Path

from bench_common.directories import RUNTIME, STATE

TOKEN = re.compile(rb"AUTH_tk[0-9a-f]{16}")
"""A token of a Swift."""


class ProcessWatch:
    """Looks at the arguments of every process, and at the files of runs in progress, until it is left."""

    def __init__(self, secret):
        self._secret = secret.encode()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.rounds = 0
        self.found = set()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _watch(self):
        while not self._over.wait(0.2):
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    if self._secret in (process / "cmdline").read_bytes():
                        self.found.add((process.name, self.rounds))
            for home in (place / "weighbridge" for place in (*RUNTIME, *STATE)):
                self.found |= {(str(path), math.inf) for path in files_with(home, self._secret)}
            self.rounds += 1

    def assert_only_until(self, pid):
        """Nobody had the secret for longer than this process; between fork and exec a child has its arguments."""
        rounds = [seen for who, seen in self.found if who == str(pid)]
        later = {(who, seen) for who, seen in self.found if seen > max(rounds, default=-1)}
        assert not later, f"{later}, and {pid} until {rounds}"


def walk_without_images(folder):
    """Walk through a folder, but not through the images that engines have unpacked there."""
    for place, folders, names in os.walk(folder):
        if "images" in folders:
            folders.remove("images")
        yield place, folders, names


def files_with(folder, secret):
    """Return the files below a folder that contain a secret, compressed or not, or a token of the store.

    Unpacked images, which no run on a store makes, are left out. Folders may vanish meanwhile: others run, too.
    """
    for path in (Path(place, name) for place, _, names in walk_without_images(folder) for name in names):
        with contextlib.suppress(OSError, EOFError):
            if path.is_file() and not path.is_symlink():
                content = path.read_bytes()
                if content.startswith(b"\x1f\x8b"):
                    content += gzip.decompress(content)
                if secret in content or TOKEN.search(content):
                    yield path
