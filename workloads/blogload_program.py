"""blogload: a load of processes on one directory of blogs. Run as a program; its text is all that it needs.

Writers make blogs: a directory each, with articles and pictures. Rewriters replace articles and pictures of blogs
that are there, commenters add comments to them, readers read whatever a blog has. Each of them is a process of its
own, as threads of Python would take turns. Every file appears at once and whole, under a temporary name first. Once
there are as many blogs as were asked for, new ones take the place of the oldest, so that no disk is filled.

The text is handed to an interpreter as it stands, on a host and in a container alike: it imports nothing but the
standard library, and knows nothing of Weighbridge.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import shutil
import signal
import struct
import sys
import time
from typing import Final

VERSION: Final = 1
ROLES: Final = ("writer", "rewriter", "commenter", "reader")
COUNTERS: Final = ("blogs", "articles", "pictures", "rewrites", "comments", "reads", "written_bytes", "read_bytes")
KIB: Final = 1024
ARTICLES: Final = (1, 8)
PICTURES: Final = (1, 4)
SIZES: Final = {"article": (1 * KIB, 64 * KIB), "picture": (32 * KIB, 256 * KIB), "comment": (64, 4 * KIB)}
"""How many of them a blog has, and how many bytes each; both ends are possible, all values alike."""
BLOG_BYTES: Final = sum(
    (least + most) * (low + high) // 4
    for (least, most), (low, high) in ((ARTICLES, SIZES["article"]), (PICTURES, SIZES["picture"]))
)
"""What a blog takes on average, without comments."""
COMMENTS: Final = 8
"""How many comments of one commenter a blog keeps; later ones take the place of earlier ones."""
CHUNK: Final = 64 * KIB
NOTHING_YET_S: Final = 0.001
"""How long those who need a blog wait before they look again whether there is one."""


class Shared:
    """Counters of all processes in one piece of memory. Each has its own row, so that nobody waits for a lock."""

    def __init__(self, rows: int) -> None:
        self._memory = mmap.mmap(-1, max(1, rows) * 8 * len(COUNTERS))

    def add(self, row: int, counter: str, amount: int = 1) -> None:
        """Add to a counter of one's own row."""
        at = 8 * (row * len(COUNTERS) + COUNTERS.index(counter))
        (value,) = struct.unpack_from("<q", self._memory, at)
        struct.pack_into("<q", self._memory, at, value + amount)

    def of(self, row: int, counter: str) -> int:
        """Return a counter of one row."""
        return int(struct.unpack_from("<q", self._memory, 8 * (row * len(COUNTERS) + COUNTERS.index(counter)))[0])

    def totals(self, rows: int) -> dict[str, int]:
        """Return each counter, summed over all rows."""
        return {counter: sum(self.of(row, counter) for row in range(rows)) for counter in COUNTERS}


class LoadWorker:
    """One process. `row` is its place among the counters; the first `writers` rows are those of writers."""

    def __init__(self, row: int, shared: Shared, options: argparse.Namespace) -> None:
        self._row = row
        self._shared = shared
        self._writers = options.writers
        self._fsync = options.fsync
        self._most = max(1, options.total_size // (BLOG_BYTES * options.writers))
        self._draw = random.Random(f"{options.seed}/{row}")
        # Incompressible, so that a file system that compresses has as much to do as it would have with pictures.
        self._noise = self._draw.randbytes(2 * SIZES["picture"][1])
        self._comments = 0

    def work(self, role: str) -> None:
        """Do one thing that a process of this role does."""
        if role == "writer":
            self._write_blog()
            return
        blog = self._random_blog()
        if blog is None:
            time.sleep(NOTHING_YET_S)
        elif role == "rewriter":
            self._rewrite(blog)
        elif role == "commenter":
            self._comments += 1
            self._write(blog, f"comment-{self._row}-{self._comments % COMMENTS}", "comment")
            self._shared.add(self._row, "comments")
        else:
            self._read(blog)

    def _write_blog(self) -> None:
        count = self._shared.of(self._row, "blogs")
        blog = f"blog-{self._row}-{count % self._most}"
        if count < self._most:
            os.mkdir(blog)
        for kind, (least, most), counter in (("article", ARTICLES, "articles"), ("picture", PICTURES, "pictures")):
            for number in range(self._draw.randint(least, most)):
                self._write(blog, f"{kind}-{number}", kind)
                self._shared.add(self._row, counter)
        self._shared.add(self._row, "blogs")

    def _random_blog(self) -> str | None:
        """Return a blog that is complete, all of one writer alike; None where that writer has none yet."""
        writer = self._draw.randrange(self._writers)
        count = min(self._shared.of(writer, "blogs"), self._most)
        return f"blog-{writer}-{self._draw.randrange(count)}" if count else None

    def _rewrite(self, blog: str) -> None:
        names = [name for name in os.listdir(blog) if name.startswith(("article", "picture"))]
        name = self._draw.choice(names)
        self._write(blog, name, name.partition("-")[0])
        self._shared.add(self._row, "rewrites")

    def _read(self, blog: str) -> None:
        names = [name for name in os.listdir(blog) if not name.startswith(".")]
        for name in self._draw.sample(names, min(4, len(names))):
            with open(f"{blog}/{name}", "rb", buffering=0) as file:
                while piece := file.read(CHUNK):
                    self._shared.add(self._row, "read_bytes", len(piece))
            self._shared.add(self._row, "reads")

    def _write(self, blog: str, name: str, kind: str) -> None:
        size = self._draw.randint(*SIZES[kind])
        start = self._draw.randrange(len(self._noise) - size)
        made = f"{blog}/.new-{self._row}"
        with open(made, "wb", buffering=0) as file:
            left = memoryview(self._noise)[start : start + size]
            while left:
                left = left[file.write(left) :]
            if self._fsync:
                os.fsync(file.fileno())
        os.rename(made, f"{blog}/{name}")
        self._shared.add(self._row, "written_bytes", size)


def run_worker(row: int, role: str, shared: Shared, options: argparse.Namespace, complaints: int) -> None:
    """Be one process until the parent ends it, or is gone; never returns."""
    parent, status = os.getppid(), 0
    try:
        worker = LoadWorker(row, shared, options)
        while os.getppid() == parent:
            worker.work(role)
    except BaseException as error:  # noqa: BLE001  whatever it was: the parent tells of it, and ends the others
        status = 1
        os.write(complaints, f"{role} {row}: {type(error).__name__}: {error}\n".encode()[:512])
    finally:
        os._exit(status)


def watch(shared: Shared, rows: int, options: argparse.Namespace, listening: int) -> float:
    """Report until the time is over; return how long it was, in seconds. `WorkerFailed` where a process did."""
    began = time.monotonic()
    reported = 0
    while True:
        elapsed = time.monotonic() - began
        due = min(options.time, (reported + 1) * options.interval) if options.interval else options.time
        if elapsed < due:
            time.sleep(min(0.05, due - elapsed))
            complaint = first_complaint(listening)
            if complaint:
                raise WorkerFailed(complaint)
        elif elapsed >= options.time:
            return elapsed
        else:
            reported += 1
            totals = shared.totals(rows)
            print_lines(f"[{elapsed:.1f}s] " + " ".join(f"{name}={totals[name]}" for name in COUNTERS))


class WorkerFailed(Exception):
    """A process failed; the message is its own."""


def first_complaint(listening: int) -> str:
    """Return the first line that a process complained with, or nothing."""
    try:
        return os.read(listening, 512).decode(errors="replace").partition("\n")[0]
    except BlockingIOError:
        return ""


def print_lines(*lines: str) -> None:
    """Print lines at once: what is still in a buffer when a process forks would be printed twice."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def run(options: argparse.Namespace) -> None:
    """Start the processes, let them work for the time given, and print what they did."""
    roles = [role for role in ROLES for _ in range(getattr(options, f"{role}s"))]
    shared = Shared(len(roles))
    listening, complaints = os.pipe()
    os.set_blocking(listening, False)
    counts = ", ".join(f"{getattr(options, f'{role}s')} {role}s" for role in ROLES)
    print_lines(f"blogload {VERSION}: {counts}; seed {options.seed}, fsync {'on' if options.fsync else 'off'}")
    children: list[int] = []
    try:
        for row, role in enumerate(roles):
            pid = os.fork()
            if not pid:
                run_worker(row, role, shared, options, complaints)
            children.append(pid)
        elapsed = watch(shared, len(roles), options, listening)
        totals = shared.totals(len(roles))
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
    print_lines(f"total time: {elapsed:.4f}s", *(f"{name}: {totals[name]}" for name in COUNTERS), "done")


def main() -> int:
    """Run in a directory of its own below the working directory, which is gone afterwards; return the exit status."""
    parser = argparse.ArgumentParser(prog="blogload")
    for role in ROLES:
        parser.add_argument(f"--{role}s", type=int, required=True)
    parser.add_argument("--time", type=float, required=True)
    parser.add_argument("--interval", type=float, default=0.0)
    parser.add_argument("--total-size", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fsync", action="store_true")
    options = parser.parse_args()
    place = f"blogload-{os.getpid()}"
    try:
        os.mkdir(place)
        os.chdir(place)
        try:
            run(options)
        finally:
            os.chdir("..")
            shutil.rmtree(place, ignore_errors=True)
    except (WorkerFailed, OSError) as error:
        sys.stderr.write(f"blogload: failed: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
