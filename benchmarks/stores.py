"""What each store of ``script/store`` can do, by Weighbridge's own S3 client.

Each store that is built here is started in a folder of its own, asked for everything that jobs and clean-ups ask for,
and ended. A check that fails is printed with what the store said.

    python benchmarks/stores.py [STORE ...]
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from hashlib import md5
from pathlib import Path
from typing import Final

from common import parser_of

from bench_common.secret import Secret
from bench_features.objects.common.access import Access
from bench_features.objects.worker.base import MIB, StoreAnswer, StoreOptions, StoreSlot
from bench_features.objects.worker.registry import open_store

SCRIPT: Final = Path(__file__).resolve().parent.parent / "script" / "store"
BUCKET: Final = "weighbridge-check"
START_S: Final = 300.0
PORTS: Final = 5
ODD_NAMES: Final = {
    "a space": "a b",
    "+ and %": "a+b%2Fc",
    "letters beyond ASCII": "ä/日本",
    "?, & and #": "a?b=c&d#e",
    "two slashes": "a//b",
    "a slash at the end": "a/b/",
    "a dot between slashes": "a/./b",
    "a name and a folder of it": "a/b",
    "900 letters": "/".join(["n" * 99] * 9),
}
"""Names of objects that some stores refuse or confuse, by what is odd about them."""


class Refused(Exception):  # what a store did, no error of the script
    """A store did not do what it was asked for, or did something else."""


def done(answer: StoreAnswer, what: str) -> StoreAnswer:
    """Return an answer that is a success; raise `Refused` with what the store said of any other."""
    if not answer.ok:
        raise Refused(f"{what}: {answer.kind}: {answer.message}")
    return answer


def same(found: object, expected: object, what: str) -> None:
    """Raise `Refused` where they differ."""
    if found != expected:
        raise Refused(f"{what}: {str(found)[:80]} instead of {str(expected)[:80]}")


def content_of(slot: StoreSlot, name: str, byte_range: tuple[int, int] | None = None) -> bytes:
    """Read an object, or a range of it."""
    content = bytearray()
    done(slot.get(BUCKET, name, content.extend, byte_range=byte_range), f"get {name}")
    return bytes(content)


def check_verbs(slot: StoreSlot) -> None:
    """Write, read, replace and delete an object, and one without content; ask for one that is not there."""
    for content in (b"hello", b"hello again", b""):
        put = done(slot.put(BUCKET, "one", [content]), "put")
        same(put.etag, md5(content, usedforsecurity=False).hexdigest(), "the ETag")
        same(content_of(slot, "one"), content, "get")
        same(done(slot.head(BUCKET, "one"), "head").length, len(content), "head's length")
    done(slot.delete(BUCKET, "one"), "delete")
    same(slot.get(BUCKET, "one").kind, "http-404", "get of an object that is deleted")
    done(slot.delete(BUCKET, "one"), "delete of an object that is deleted")


def check_multipart(slot: StoreSlot) -> None:
    """Write 11 MiB in parts of 5 MiB, and read it."""
    body = [bytes([number]) * MIB for number in range(11)]
    same(done(slot.put(BUCKET, "large", body), "put in parts").requests, 5, "requests of an upload in parts")
    same(content_of(slot, "large") == b"".join(body), True, "the content is what was written")
    done(slot.delete(BUCKET, "large", in_parts=True), "delete")


def check_ranges(slot: StoreSlot) -> None:
    """Read the begin, the middle and the end of an object."""
    body = bytes(range(256)) * 16
    done(slot.put(BUCKET, "ranged", [body]), "put")
    for first, last in ((0, 0), (1000, 1999), (4000, 4095)):
        same(content_of(slot, "ranged", (first, last)), body[first : last + 1], f"bytes {first} to {last}")
    done(slot.delete(BUCKET, "ranged"), "delete")


def check_listing(slot: StoreSlot) -> None:
    """List 25 objects in pages of ten, from a marker, and by prefix; in the order of their bytes."""
    names = sorted([f"l/{number}" for number in range(20)] + ["l-", "l0", "lä", "m/1", "Z"], key=str.encode)
    for name in names:
        done(slot.put(BUCKET, name, [b"x"]), f"put {name}")
    found: list[str] = []
    while page := done(slot.list_objects(BUCKET, marker=found[-1] if found else "", limit=10), "list").entries:
        same(len(page) <= 10, True, "a page's length")  # the limit above
        found += [one.name for one in page]
    same(found, names, "list")
    some = done(slot.list_objects(BUCKET, prefix="l/", marker="l/5"), "list by prefix").entries
    same([one.name for one in some], [name for name in names if name.startswith("l/") and name > "l/5"], "by prefix")
    for name in names:
        done(slot.delete(BUCKET, name), f"delete {name}")


def check_odd_names(slot: StoreSlot) -> None:
    """Write, read, list and delete objects whose names are odd."""
    refused = []
    for what, name in ODD_NAMES.items():
        try:
            if what == "a name and a folder of it":
                done(slot.put(BUCKET, "a", [b"folder"]), "put a")
            done(slot.put(BUCKET, name, [what.encode()]), "put")
            same(content_of(slot, name), what.encode(), "get")
            same(name in [one.name for one in done(slot.list_objects(BUCKET), "list").entries], True, "it is listed")
        except Refused as error:
            refused.append(f"{what} ({error})")
        finally:
            slot.delete(BUCKET, name)
            slot.delete(BUCKET, "a")
    if refused:
        raise Refused("; ".join(refused))


def check_buckets(slot: StoreSlot) -> None:
    """Have a bucket listed, not deleted while it is full, and told where it is missing."""
    done(slot.put(BUCKET, "kept", [b"x"]), "put")
    same(slot.delete_container(BUCKET).kind, "http-409", "delete of a bucket that is not empty")
    done(slot.delete(BUCKET, "kept"), "delete")
    same(slot.get("weighbridge-nobody", "one").kind, "http-404", "get from a bucket that is not there")
    same(BUCKET in [one.name for one in done(slot.list_containers(), "list buckets").entries], True, "it is listed")


CHECKS: Final[Mapping[str, Callable[[StoreSlot], None]]] = {
    "verbs": check_verbs,
    "multipart": check_multipart,
    "ranges": check_ranges,
    "listing": check_listing,
    "buckets": check_buckets,
    "odd names": check_odd_names,
}


def run_script(*words: str, home: str) -> str:
    """Run `script/store` with its files in `home`; return what it prints. Raises `CalledProcessError`."""
    environment = {**os.environ, "WEIGHBRIDGE_STORE": home}
    return subprocess.run(
        [str(SCRIPT), *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def free_port() -> int:
    """Return a port that is free, as are those that follow it and that a store may take."""
    for first in range(20_000, 30_000, 2 * PORTS):
        with ExitStack() as held, suppress(OSError):
            for port in range(first, first + PORTS):
                held.enter_context(closing(socket.socket())).bind(("127.0.0.1", port))
            return first
    raise OSError("no free ports")


@contextmanager
def running(name: str, port: int) -> Iterator[Access]:
    """Start a store in a new folder, give how it is reached, and wipe it."""
    with tempfile.TemporaryDirectory(prefix="weighbridge-store-") as home:
        run_script("start", name, "--port", str(port), "--yes", home=home)
        try:
            lines = [
                line.removeprefix("export ").partition("=") for line in run_script("env", name, home=home).split("\n")
            ]
            values = {key: value for key, _, value in lines}
            yield Access(
                "s3",
                "script/store",
                (values["AWS_ENDPOINT_URL_S3"],),
                region=values["AWS_REGION"],
                user=values["AWS_ACCESS_KEY_ID"],
                key=Secret(values["AWS_SECRET_ACCESS_KEY"]),
            )
        finally:
            run_script("wipe", name, home=home)


def check(access: Access) -> dict[str, str]:
    """Return what a store refused, by check; "" for a check that passed."""
    store = open_store(access, StoreOptions(timeout_s=60.0, multipart_above_bytes=MIB, part_bytes=5 * MIB))
    found = {}
    with closing(store), closing(store.slot(0)) as slot:
        done(slot.make_container(BUCKET), "make a bucket")
        for name, body in CHECKS.items():
            try:
                body(slot)
            except Refused as refused:
                found[name] = str(refused)
            else:
                found[name] = ""
        done(slot.delete_container(BUCKET), "delete the bucket")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Print a row for each store."""
    parser = parser_of(__doc__)
    parser.add_argument("stores", nargs="*", metavar="STORE", help="which (default: all that are built here)")
    wanted = parser.parse_args(argv).stores
    with tempfile.TemporaryDirectory() as home:
        _, *rows = run_script("list", home=home).splitlines()
    reasons = []
    print(f"{'store':<10} {'version':<36} {'licence':<11} {'program':>8}  " + "  ".join(CHECKS))
    for name, version, licence, _, _, program in (row.split("\t") for row in rows):
        if name not in (wanted or [name]):
            continue
        if program.startswith("not "):
            print(f"{name:<10} {version:<36} {licence:<11} {program}")
            continue
        with running(name, free_port()) as access:
            found = check(access)
        size = "" if program.startswith("/") else program
        cells = "  ".join(f"{'no' if found[check] else 'yes':<{len(check)}}" for check in CHECKS)
        print(f"{name:<10} {version:<36} {licence:<11} {size:>8}  {cells}", flush=True)
        reasons += [f"{name}: {check}: {reason}" for check, reason in found.items() if reason]
    print("", *reasons, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
