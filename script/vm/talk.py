"""Talks to a virtual machine of the testbed: to QEMU through its monitor, to the guest through a serial port.

    talk.py QMP-SOCKET resume           let a restored machine go on once it is loaded
    talk.py QMP-SOCKET stop | cont      hold its processors; let them go on
    talk.py QMP-SOCKET save FILE        hold it, and write its state to a file
    talk.py QMP-SOCKET quit             end it
    talk.py SERIAL-SOCKET tell < SCRIPT have the guest run a shell script, in which $now is the time; print its words

Exit codes: that of the script told, 0 when done, 3 when the machine does not answer or cannot do it.
"""

import base64
import json
import socket
import sys
import time

LIMIT_S = 150.0
"""What a guest may take for one script: under software emulation a step of seconds takes minutes."""
START_S = 10.0
"""How long QEMU may take to make its sockets."""
SAVE_BYTES_S = 1 << 34
"""No limit: by default QEMU leaves bandwidth to the guest, which does not run then."""
END = b"\nweighbridge: "


class NoAnswer(Exception):
    """The machine did not answer, or refused; the message says what."""


class Line:
    """A connection to a socket of QEMU, read line by line, with one deadline for all."""

    def __init__(self, path: str) -> None:
        self._deadline = time.monotonic() + LIMIT_S
        self._socket = socket.socket(socket.AF_UNIX)
        self._read = b""
        while True:
            try:
                self._socket.connect(path)
            except OSError as error:
                # QEMU makes its sockets a moment after it is started.
                if time.monotonic() > self._deadline - LIMIT_S + START_S:
                    raise NoAnswer(f"{error.strerror}") from error
                time.sleep(0.02)
            else:
                return

    def send(self, data: bytes) -> None:
        """Send a line."""
        self._socket.settimeout(LIMIT_S)
        self._socket.sendall(data + b"\n")

    def read_until(self, mark: bytes) -> bytes:
        """Return what comes before `mark`."""
        while mark not in self._read:
            self._socket.settimeout(max(0.01, self._deadline - time.monotonic()))
            try:
                more = self._socket.recv(1 << 16)
            except TimeoutError:
                raise NoAnswer(f"no answer within {LIMIT_S:g} s; it said {self._read[-300:]!r}") from None
            if not more:
                raise NoAnswer("QEMU has ended")
            self._read += more
        before, _, self._read = self._read.partition(mark)
        return before


class Monitor:
    """QEMU's own control (its machine protocol, QMP)."""

    def __init__(self, path: str) -> None:
        self._line = Line(path)
        self._line.read_until(b"\n")
        self.ask("qmp_capabilities")

    def ask(self, command: str, **arguments: object) -> dict:
        """Return the answer to a command; raise `NoReply` when it is refused."""
        self._line.send(json.dumps({"execute": command, "arguments": arguments}).encode())
        while True:
            answer = json.loads(self._line.read_until(b"\n"))
            if "error" in answer:
                raise NoAnswer(f"{command}: {answer['error']['desc']}")
            if "return" in answer:  # and no event
                return answer["return"]

    def wait_for(self, command: str, state: str) -> None:
        """Wait until the answer to `command` has this status."""
        deadline = time.monotonic() + LIMIT_S
        while (found := self.ask(command)).get("status") != state:
            if found.get("status") == "failed" or time.monotonic() > deadline:
                raise NoAnswer(f"{command}: expected {state}, found {found}")
            time.sleep(0.05)


def save(monitor: Monitor, path: str) -> None:
    """Hold the machine and write its state."""
    monitor.ask("stop")
    monitor.ask("migrate-set-parameters", **{"max-bandwidth": SAVE_BYTES_S})
    quoted = "'" + path.replace("'", "'\\''") + "'"
    monitor.ask("migrate", uri=f"exec:cat >{quoted}")
    monitor.wait_for("query-migrate", "completed")


def tell(path: str, script: str) -> int:
    """Have the guest run a script; print what it says and return its exit code."""
    line = Line(path)
    line.send(base64.b64encode(f"now={time.time():.6f}\n{script}".encode()))
    said = line.read_until(END)
    status = int(line.read_until(b"\n"))
    sys.stdout.write(said.decode("utf-8", "replace"))
    return status


def main() -> int:
    """Do what the arguments say."""
    path, verb, *words = sys.argv[1:]
    try:
        if verb == "tell":
            return tell(path, sys.stdin.read())
        monitor = Monitor(path)
        if verb == "resume":
            # It was held when it was saved, and is so again.
            monitor.wait_for("query-status", "paused")
            monitor.ask("cont")
        elif verb == "save":
            save(monitor, *words)
        elif verb in ("stop", "cont", "quit"):
            monitor.ask(verb)
        else:
            raise NoAnswer(f"unknown verb {verb!r}: expected resume, stop, cont, save, quit or tell")
    except NoAnswer as error:
        sys.stderr.write(f"{path}: {error}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
