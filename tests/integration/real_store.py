"""A real object store for tests: a Swift that `script/store` starts, its access log, and a Keystone before it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from busybox_image import skip_or_fail
from deadlines import ANSWER_S, LONG_END_S, START_S
from places import ROOT, TESTS
from workspace import free_ports


@dataclass(frozen=True)
class Request:
    """A request that the store answered, by its own log."""

    method: str
    path: str
    status: int
    agent: str
    sent_bytes: int
    transaction_id: str


class RealStore:
    """A store in a folder of its own, at ports of its own."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.port = consecutive_ports(5)
        self.url = f"http://127.0.0.1:{self.port}"
        self.auth_url = f"{self.url}/auth/v1.0"

    def __enter__(self):
        done = self.script("start", "--port", self.port)
        if done.returncode:
            skip_or_fail(f"script/store start: {done.stderr.strip()}")
        return self

    def __exit__(self, *_):
        self.script("wipe")

    def script(self, *arguments):
        """Run `script/store`; return the finished process."""
        environment = {**os.environ, "WEIGHBRIDGE_STORE": str(self.folder)}
        environment.pop("PYTHONPYCACHEPREFIX", None)  # Swift is compiled beside its sources
        command = [str(ROOT / "script" / "store"), *map(str, arguments)]
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONG_END_S,  # the first start on a machine downloads Swift
            check=False,
        )

    @property
    def swift_variables(self):
        """The variables that lead to it as a Swift."""
        return {"ST_AUTH": self.auth_url, "ST_USER": "test:tester", "ST_KEY": "testing"}

    @property
    def s3_variables(self):
        """The variables that lead to it as an S3."""
        return {
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_ACCESS_KEY_ID": "test:tester",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "us-east-1",
        }

    def requests(self, agent="weighbridge"):
        """Return the requests of a client that the store has logged so far, in the order of their ends."""
        lines = (self.folder / "log" / "access.log").read_text().splitlines()
        found = [line.split(" ") for line in lines]
        rows = [
            Request(
                method=words[3],
                path=urllib.parse.unquote(words[4]),
                status=int(words[6]),
                agent=urllib.parse.unquote(words[8]),
                sent_bytes=0 if words[11] == "-" else int(words[11]),
                transaction_id=words[13],
            )
            for words in found
        ]
        return [row for row in rows if row.agent.startswith(agent)]

    def containers(self, account="AUTH_test"):
        """Return the names of the account's containers.

        A listing may be behind for good: a container whose deletion the account's server did not answer in time stays
        in it until an updater runs, and this store has none. Thus each is asked for.
        """
        return [entry["name"] for entry in self._list(account) if self._is_there(f"{account}/{entry['name']}")]

    def objects(self, container, account="AUTH_test"):
        """Return the objects of a container by name, as the store lists them."""
        return {entry["name"]: entry for entry in self._list(f"{account}/{container}")}

    def _is_there(self, path):
        try:
            self.open("HEAD", path).close()
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def _list(self, path):
        with self.open("GET", f"{path}?format=json") as answer:
            return json.load(answer)

    def open(self, method, path, body=None, **headers):
        """Send a request by other means than those under test; `path` follows ``/v1/``."""
        login = urllib.request.Request(
            self.auth_url, headers={"X-Auth-User": "test:tester", "X-Auth-Key": "testing", "User-Agent": "test"}
        )
        with urllib.request.urlopen(login, timeout=ANSWER_S) as answer:
            token = answer.headers["X-Auth-Token"]
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(
            f"{self.url}/v1/{urllib.parse.quote(path, safe='/?=&')}",
            body,
            {"X-Auth-Token": token, "User-Agent": "test", **named},
            method=method,
        )
        return urllib.request.urlopen(request, timeout=ANSWER_S)


class RealKeystone:
    """The Keystone stub in a process of its own, before a store."""

    def __init__(self, store):
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        program = Path(__file__).with_name("keystone_stub.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), str(port), store.auth_url],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._port = port

    def __enter__(self):
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=ANSWER_S):
                return self
            assert time.monotonic() < deadline, "the Keystone stub does not answer"
            time.sleep(0.02)

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(ANSWER_S)

    @property
    def logins(self):
        """How many logins succeeded."""
        with urllib.request.urlopen(f"{self.url}/logins", timeout=ANSWER_S) as answer:
            return json.load(answer)["logins"]


def consecutive_ports(count):
    """Return the first of so many free TCP ports in a row."""
    while True:
        (first,) = free_ports(1)
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
