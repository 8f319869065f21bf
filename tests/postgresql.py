"""A PostgreSQL of Debian's packages, run by the tests as an ordinary user, on a socket in a temporary folder."""

import itertools
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest
from deadlines import START_S

either_database = pytest.mark.parametrize("archive_url", ["sqlite", "postgresql"], indirect=True)
"""Marks a test that uses PostgreSQL with every run, too; of others only the slow ones do."""

_schemas = itertools.count()


def find_programs():
    """Return the folder of the newest server's programs; None if there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return found[-1].parent if found else None


class PostgresqlServer:
    """A server with one superuser, ``bench``, whom it trusts; as a context it runs."""

    def __init__(self, programs):
        self._programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="weighbridge-postgresql-", dir="/tmp"))
        # It refuses to run as root.
        self._as_user = []
        if os.geteuid() == 0:
            shutil.chown(self.folder, "nobody", "nogroup")
            self._as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--pdeathsig=INT"]

    def __enter__(self):
        data = self.folder / "data"
        self._run("initdb", "--auth=trust", "--username=bench", "--no-sync", "--encoding=UTF8", "--locale=C", data)
        with (self.folder / "log").open("wb") as log:
            command = [*self._as_user, self._programs / "postgres", "-D", data, "-k", self.folder]
            settings = ("listen_addresses=", "fsync=off", "max_connections=60")
            command += [word for setting in settings for word in ("-c", setting)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        limit = time.monotonic() + START_S
        while True:
            try:
                psycopg.connect(self.dsn).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < limit, (self.folder / "log").read_text()
                time.sleep(0.005)
            else:
                return self

    def _run(self, program, *arguments):
        done = subprocess.run(
            [*self._as_user, self._programs / program, *map(str, arguments[:-1]), "-D", str(arguments[-1])],
            capture_output=True, text=True, timeout=START_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def __exit__(self, *_):
        self._process.send_signal(2)  # ends at once, in order
        try:
            self._process.wait(START_S)
        finally:
            self._process.kill()
            self._process.wait()
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def dsn(self):
        """How psycopg reaches it."""
        return f"host={self.folder} user=bench dbname=postgres"

    def url(self, objects):
        """Return the address of a new archive whose files are in a folder."""
        return (
            f"postgresql+psycopg://bench:s3cret@/postgres?host={self.folder}&objects={objects}"
            f"&schema=archive{next(_schemas)}_{os.getpid()}"
        )
