"""Many workers that answer with recorded frames, so that a measurement of their master shares no CPU with them.

Each joins and sends heartbeats as a light worker does (`light_workers.py`). Its load process is played by a C program
(`recorded_workers.c`), one for all of them: it answers each job at once with the row of a no-op job that was recorded
here, with the ids patched in, in batches of the size that the master asks for. So a job costs it a fraction of a
microsecond, where a load process in Python takes two and more.

    python benchmarks/recorded_workers.py --control-port PORT [--count N] [--slots N] [--name PREFIX]

It prints as JSON how many jobs, orders and batches there were, and the CPU that they took here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from common import FOLDER
from light_workers import LightWorker, parser, run_workers

from bench_common.messages import Results, Welcome, encode
from bench_common.records import LOOP_BYTES, RESULT_FIELDS, WORD_BYTES, Outcome

CANNOT_BUILD = "recorded workers are a C program: apt-get install gcc libc6-dev"
NUMBERS = ("epoch", "sequence", "treatment", "trial", "taken")
MARK = 0x7A5A_5A5A_5A5A_5A00
"""Each number of the recorded frame is this and its place: eight bytes, and found again in the frame."""
LAST_NS = 1000
"""How long a recorded job took."""


def build(directory: str) -> list[str] | None:
    """Return the command of the player, built in a directory; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    program = Path(directory, "recorded_workers")
    subprocess.run([compiler, "-O2", "-o", str(program), str(FOLDER / "recorded_workers.c")], check=True)
    return [str(program)]


def recorded_frame() -> str:
    """Return the line that tells the player what results look like, and where their numbers are."""
    marks = {name: MARK + place for place, name in enumerate(NUMBERS)}
    rows = b"\xff" * WORD_BYTES
    frame = encode(Results(rows=rows, loop=bytes(LOOP_BYTES), metrics=[], errors=[], outputs=[], **marks))
    # Before the bytes of the rows is a head of two bytes; the player writes one for rows of any number.
    before, _, after = frame.partition(b"\xc4" + bytes([len(rows)]) + rows)
    places = [before.index(marks[name].to_bytes(8, "big")) for name in NUMBERS[:-1]]
    places.append(after.index(marks["taken"].to_bytes(8, "big")))
    # A job with one operation: its stamps are the instant of the answer.
    head = {"ticket": 0, "outcome": Outcome.DONE, "failed_at": -1, "uncertainty_ns": 0, "start_ns": 0, "end_ns": 0}
    words = [*(head[name] for name in RESULT_FIELDS), 0, LAST_NS]
    row = b"".join(int(word).to_bytes(WORD_BYTES, "little", signed=True) for word in words)
    at = [WORD_BYTES * RESULT_FIELDS.index(name) for name in ("ticket", "start_ns", "end_ns")]
    at.append(WORD_BYTES * len(RESULT_FIELDS))
    return " ".join(["frame", before.hex(), after.hex(), row.hex(), *map(str, (*places, *at))])


class RecordedWorker(LightWorker):
    """A worker whose jobs are the player's: `player` gets a line with what it needs to connect."""

    player: subprocess.Popen[str]

    def _join(self, welcome: Welcome) -> None:
        self._epoch, self._heartbeat_s = welcome.epoch, welcome.heartbeat_s
        ports = (endpoint.rpartition(":")[2] for endpoint in (welcome.lane_endpoint, welcome.results_endpoint))
        assert self.player.stdin is not None
        self.player.stdin.write(" ".join(["worker", str(welcome.epoch), welcome.token, *ports]) + "\n")
        self.player.stdin.flush()


def main() -> int:
    """Start the player and the workers, wait for the end of all, and print what they did."""
    options = parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as directory:
        command = build(directory)
        if command is None:
            sys.stderr.write(f"{CANNOT_BUILD}\n")
            return 3
        RecordedWorker.player = player = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert player.stdin is not None
        assert player.stdout is not None
        player.stdin.write(recorded_frame() + "\n")
        player.stdin.flush()
        served = run_workers(options, RecordedWorker)
        player.stdin.close()
        print(player.stdout.read(), end="", flush=True)
        player.wait(60)
    return 0 if served == options.count else 3


if __name__ == "__main__":
    sys.exit(main())
