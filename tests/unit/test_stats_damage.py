"""A stats file that lacks a block, or has one twice, elsewhere or changed, is damaged for whoever reads it."""

import io
import zlib
from contextlib import redirect_stdout
from io import TextIOWrapper
from itertools import pairwise

import msgpack
import msgspec
import numpy as np
import pytest
from archive_runs import a_run
from builders import footer, header, job_rows, lifecycle_run, loose_frame, members_of, text_formats, treatment_wire
from other_runs import imported_run, object_run

import weighbridge
from bench_common.errors import ExitCode, StatsFileError, WeighbridgeError
from bench_common.records import Outcome, ticket_of
from bench_common.stats import frame
from bench_common.stats.account import MAX_GAPS, Account, JobNumbers
from bench_common.stats.block_types import Header, StoredFooter
from bench_common.stats.frame import FrameReader, encode_frame
from bench_common.stats.reader import StatsFile, StatsWriter
from bench_common.streams import tell
from bench_features.archive.archive import Archive
from bench_master.cli import run_command_line
from bench_master.run.resume import ResumableRun

RECORDED = ("complete", "killed", "objects", "imported")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return the blocks, as bytes, of a file of each kind."""
    folder = tmp_path_factory.mktemp("recorded")
    complete = members_of(lifecycle_run(folder / "complete.stats.gz", flush=True).read_bytes())
    return {
        "complete": complete,
        "killed": complete[:-1],
        "objects": members_of(object_run(folder / "objects.stats.gz").read_bytes()),
        "imported": members_of(imported_run(folder).read_bytes()),
    }


def kind_of(member):
    kind, _ = FrameReader(io.BytesIO(member), may_begin_anywhere=True).read()
    return kind


def edited(members, at):
    """Return the blocks with another payload at a place, and the number and checksums that belong to it there."""
    reader = FrameReader(io.BytesIO(b"".join(members)))
    for _ in range(at):
        reader.read()
    return [*members[:at], encode_frame(msgpack.packb(["event", {"at_ns": 1, "kind": "odd"}]), reader.chain)]


def flipped(member):
    """Return a block with one wrong bit in the middle of its data."""
    changed = bytearray(member)
    changed[len(member) // 2] ^= 4
    return bytes(changed)


def damages(members):
    """Yield what can happen to a block of each kind: what it is called, the file's bytes, and the first block hit."""
    kinds = [kind_of(member) for member in members]
    last = len(members) - 1
    for kind in dict.fromkeys(kinds):
        places = [place for place, found in enumerate(kinds) if found == kind]
        at = places[len(places) // 2]
        before, member, after = members[:at], members[at], members[at + 1 :]
        if at < last or kind == "footer":
            yield f"{kind} removed", before + after, at
        yield f"{kind} twice", [*before, member, member, *after], at + 1
        yield f"{kind} twice, far off", [*members, member], last + 1
        yield f"{kind} with a wrong bit", [*before, flipped(member), *after], at
        if at < last:
            yield f"{kind} after the next", [*before, after[0], member, *after[1:]], at
            yield f"{kind} replaced", [*edited(members, at), *after], at + 1 if at else 0


def walked(path):
    """Return how many blocks a whole pass reads, and the damage that it finds."""
    try:
        stats = StatsFile(path)
        assert list(stats.blocks(everything=True)) or stats.damage
        _ = stats.header
    except StatsFileError as error:
        return 0, str(error)
    return stats.intact_chain.number, stats.damage


@pytest.mark.parametrize("name", RECORDED)
def test_whatever_happens_to_a_block_the_file_is_damaged_there(recorded, tmp_path, name):
    """Of a file of each kind, and a block of each kind in it: what is before is read, and nothing behind."""
    path = tmp_path / "run.stats.gz"
    path.write_bytes(b"".join(recorded[name]))
    assert walked(path) == (len(recorded[name]), None)
    seen = set()
    for what, members, at in damages(recorded[name]):
        path.write_bytes(b"".join(members))
        found, damage = walked(path)
        if what == "footer removed":
            # That is how a killed run ends: no block is missing before it.
            assert (found, damage) == (at, None)
            continue
        assert damage, what
        assert found == at, what
        seen.add(what.split(maxsplit=1)[0])
    wanted = {"complete": {"errors", "metrics", "operations"}, "objects": {"transfers", "transactions"}}
    wanted["imported"] = {"outputs", "metrics"}
    assert seen >= {"header", "host", "event", "jobs"} - ({"event"} if name == "imported" else set())
    assert seen >= wanted.get(name, set())


def test_the_damage_says_what_became_of_the_blocks(recorded, tmp_path):
    """Which block is there, which one was expected, and what that means."""
    path, members = tmp_path / "run.stats.gz", recorded["killed"]
    for changed, words in (
        ([*members[:3], *members[4:]], "this is block 4, where block 3 is expected: blocks are missing; the rest"),
        ([*members[:3], *members[1:]], "this is block 1, where block 3 is expected: blocks are there twice, or in"),
        ([*edited(members, 2), *members[3:]], "block 3 does not follow these blocks: one of them was changed or"),
        ([*members[:3], loose_frame(msgpack.packb(["event", {}]))], "block 3 has no number, as the blocks before"),
    ):
        path.write_bytes(b"".join(changed))
        assert words in walked(path)[1]
    path.write_bytes(b"".join(members[1:]))
    with pytest.raises(StatsFileError, match="nothing to read: byte 0: this is block 1, where block 0 is expected"):
        _ = StatsFile(path).header


def by_report(path, folder, name):
    return run_command_line(["report-scenario", "-s", str(path), "--format", name, "-f", str(folder / "report")])


def by_rates(path, folder):
    words = ["report-scenario", "-s", str(path), "-r", str(folder / "rates"), "-f", str(folder / "report")]
    return run_command_line(words)


def by_notebook(path, folder):
    """Read a table; what a notebook warns of is an error in a test."""
    try:
        weighbridge.load(path, "numpy").jobs()
    except (UserWarning, WeighbridgeError) as error:
        tell(str(error))
        return getattr(error, "exit_code", ExitCode.INFRASTRUCTURE)
    return ExitCode.OK


def by_resume(path, folder):
    try:
        ResumableRun(path).close()
    except WeighbridgeError as error:
        tell(str(error))
        return error.exit_code
    return ExitCode.OK


def by_new_index(path, folder):
    """Put the bytes where an archive has those of its runs, and say in which state the new index has them."""
    place = str(folder / "indexed")
    with Archive.open(place, create=True) as archive:
        archive.folder.put(path)
    with Archive.open(place) as archive:
        runs = archive.runs()
        states = {run.state for run in runs}
        tell("; ".join(run.problem for run in runs))
    return ExitCode.INFRASTRUCTURE if states <= {"damaged", "incomplete"} else ExitCode.OK


READERS = {
    **dict.fromkeys(text_formats(), by_report),
    "rates": by_rates,
    "show-output": lambda path, folder: run_command_line(["show-output", "0", "-s", str(path)]),
    "compare": lambda path, folder: run_command_line(
        ["compare", str(a_run(folder / "good.stats.gz")), "--new", str(path)]
    ),
    "notebook": by_notebook,
    "resume": by_resume,
    "archive add": lambda path, folder: run_command_line(
        ["archive", "add", str(path), "--archive", str(folder / "archive")]
    ),
    "index of an archive": by_new_index,
}
OTHER_REASONS = ("carry no timestamps", "holds no outputs", "no output of job 0; ", "is not a stats file", "imported")
"""Why a command has nothing to show of a file, damaged or not."""


@pytest.mark.parametrize("name", list(READERS))
def test_every_reader_says_that_a_file_is_damaged(recorded, tmp_path, capfdbinary, name):
    """Each sees some kinds of damage to some kinds of blocks in a file of each kind, and ends with exit code 3."""
    number, reader = list(READERS).index(name), READERS[name]
    for place, kind in enumerate(RECORDED):
        found = [one for one in damages(recorded[kind]) if one[0] != "footer removed"]
        for step in range(2):
            what, members, _ = found[(number * 5 + place * 3 + step * 7) % len(found)]
            folder = tmp_path / f"{kind}-{step}"
            folder.mkdir()
            path = folder / "run.stats.gz"
            path.write_bytes(b"".join(members))
            with redirect_stdout(TextIOWrapper(io.BytesIO(), "utf-8")):
                status = reader(path, folder, name) if reader is by_report else reader(path, folder)
            told = capfdbinary.readouterr().err.decode()
            assert "rror: " not in told, (what, told)
            if status == ExitCode.USAGE:
                assert any(reason in told for reason in OTHER_REASONS), (what, told)
            else:
                assert (status, "byte " in told) == (ExitCode.INFRASTRUCTURE, True), (kind, what, told)


# -- older files -------------------------------------------------------------------------------------------------


def older(path, members):
    """Write the blocks as files had them before they were numbered."""
    payloads = []
    for member in members:
        kind, body = FrameReader(io.BytesIO(member), may_begin_anywhere=True).read()
        payloads.append(loose_payload(member) if body else msgpack.packb([kind, {}]))
    path.write_bytes(b"".join(map(loose_frame, payloads)))
    return path


def loose_payload(member):
    """Return the payload of a block."""
    reader = FrameReader(io.BytesIO(member), may_begin_anywhere=True)
    return bytes(reader._payload())


def test_a_file_of_before_reads_as_it_did(recorded, tmp_path):
    """Its blocks have no numbers: whole, it gives the same blocks; with jobs twice, the jobs have two rows."""
    path = older(tmp_path / "run.stats.gz", recorded["killed"])
    assert walked(path) == (len(recorded["killed"]), None)
    jobs = next(at for at, member in enumerate(recorded["killed"]) if kind_of(member) == "jobs")
    stats = StatsFile(older(path, [*recorded["killed"], recorded["killed"][jobs]]))
    assert stats.contradiction
    assert stats.intact_chain.number == len(recorded["killed"]) + 1
    assert stats.damage == "job 0 has more than one row: blocks are missing, or are there twice"


def test_what_is_added_to_a_file_of_before_vouches_for_all_of_it(recorded, tmp_path):
    """A resumed run continues the chain over the older blocks: one of them that is removed then shows."""
    path = older(tmp_path / "run.stats.gz", recorded["killed"])
    stats = StatsFile(path)
    assert list(stats.blocks(everything=True))
    writer = StatsWriter(path, reopen=True)
    writer.truncate_to(stats.intact_bytes, stats.intact_chain)
    writer.put("event", {"at_ns": 1, "kind": "odd"})
    writer.close(footer())
    count = len(recorded["killed"])
    assert walked(path) == (count + 2, None)
    members = members_of(path.read_bytes())
    path.write_bytes(b"".join([*members[:4], *members[5:]]))
    found, damage = walked(path)
    assert found == count - 1
    assert f"this is block {count}, where block {count - 1} is expected: blocks are missing" in damage


# -- the account -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_numbers_of_jobs_agree_with_a_set(seed):
    """Whatever comes in whatever blocks: a number is repeated if and only if a set has it already."""
    draw = np.random.default_rng(seed)
    numbers, known, repeated = JobNumbers(), set(), False
    for _ in range(30):
        part = draw.integers(0, 2000, draw.integers(1, 9)) if seed % 2 else draw.permutation(9) + len(known)
        repeated = repeated or len(set(part.tolist())) < len(part) or not known.isdisjoint(part.tolist())
        known.update(part.tolist())
        numbers.add(part)
        assert bool(numbers.repeated) == repeated
        assert numbers.gaps == sum(b - a > 1 for a, b in pairwise(sorted(known)))


HEAD = header(
    [treatment_wire(0, {"engine": "native"}) | {"jobs_per_trial": 3}, treatment_wire(1, {"engine": "runc"})],
    [(0, 0, False), (1, 0, False)],
)


def contradiction(*blocks):
    account = Account(msgspec.convert(HEAD, Header))
    for kind, body in blocks:
        account.add(kind, body)
    return account.contradiction


def jobs(*numbers, **more):
    return "jobs", job_rows(*({"ticket": ticket_of(number), **more} for number in numbers))


def end_of(trial, **more):
    return "event", {"at_ns": 1, "kind": "trial-end", "trial": trial, "complete": True, **more}


ODD_TRIAL = "complete trial {} has other jobs than planned: blocks are missing, or are there twice"


def test_a_complete_trial_has_the_jobs_of_its_plan():
    """Done or failed, but for those that a full host returned; a trial by time has as many as it has."""
    assert contradiction(jobs(0, 1, 2), end_of(0), jobs(3, trial=1, treatment=1), end_of(1)) is None
    assert contradiction(jobs(0, 1, outcome=1), jobs(2), end_of(0)) is None
    assert contradiction(jobs(0, 1), end_of(0)) == ODD_TRIAL.format(0)
    assert contradiction(jobs(0, 1, 2, 3), end_of(0)) == ODD_TRIAL.format(0)
    assert contradiction(jobs(0, 1), end_of(0, complete=False)) is None
    assert contradiction(jobs(0, 1), ("event", {"kind": "packed", "trial": 0, "returned": 1}), end_of(0)) is None
    lost = jobs(3, trial=1, treatment=1, outcome=int(Outcome.LOST))
    assert contradiction(lost, end_of(1)) == ODD_TRIAL.format(1)
    assert contradiction(jobs(0), end_of(0), lost, end_of(1)).startswith("complete trials 0, 1 have other jobs")


def test_a_run_that_failed_to_record_results_says_so_itself():
    """Its last block calls it incomplete: fewer rows than the plan has are no damage, more are."""
    unrecorded = "footer", StoredFooter(status="incomplete")
    assert contradiction(jobs(0, 1), end_of(0), unrecorded) is None
    assert contradiction(jobs(0, 1, 2, 3), end_of(0), unrecorded) == ODD_TRIAL.format(0)


def test_each_job_has_one_row_whatever_the_attempt(tmp_path):
    """Two attempts of one job that both have a row, or a row twice, are damage of a run without an end, too."""
    twice = [{"ticket": ticket_of(7)}, {"ticket": ticket_of(8)}, {"ticket": ticket_of(7, 1)}]
    path = tmp_path / "run.stats.gz"
    writer = StatsWriter(path)
    writer.put("header", HEAD)
    writer.jobs(job_rows(*twice))
    writer.close()
    assert walked(path)[1] is None, "everything is there, superseded rows too"
    stats = StatsFile(path)
    assert list(stats.blocks({"outputs"})) == []
    assert stats.damage == "job 7 has more than one row: blocks are missing, or are there twice"
    with pytest.raises(StatsFileError, match="job 7 has more than one row"):
        ResumableRun(path)


def test_numbers_without_end_are_damage_and_no_memory():
    """No run leaves so many gaps."""
    account = Account(msgspec.convert(HEAD, Header))
    step = 60_000
    for first in range(0, MAX_GAPS + 2 * step, step):
        rows = np.zeros(step, job_rows().dtype)
        rows["ticket"] = (np.arange(step) + first) * 2
        account.add("jobs", rows)
    assert account.contradiction.startswith(f"the numbers of the jobs have more than {MAX_GAPS} gaps")


# -- files that unpack to much more ------------------------------------------------------------------------------

MIB = 1 << 20
BOMBS = {
    "blocks of 64 MiB": (b"\x92\xa7novelty\x81\xa1a\xc6", 64 * MIB, "at most 33554432 expected"),
    "events of 32 MiB": (b"\x92\xa5event\x81\xa1a\xc6", 31 * MIB, "a block of kind 'event' says that it is"),
    "no pairs": (b"\x81\xa1a\xc6", 16 * MIB, "the member holds no block: it does not begin as a pair"),
    "zeros": (b"", 16 * MIB, "the member holds no block: it does not begin as a pair"),
    "unknown kinds": (b"\x92\xa7novelty\x81\xa1a\xc6", 16 * MIB, "more than 64 MiB are no results of any known kind"),
    "odd jobs": (b"\x92\xa4jobs\x81\xa1a\xc6", 16 * MIB, "more than 64 MiB are no results of any known kind"),
}


class CountedZlib:
    """Counts what a reader inflates."""

    def __init__(self):
        self.bytes = 0

    def __getattr__(self, name):
        return getattr(frame._fastest_zlib(), name)

    def decompressobj(self, wbits):
        counted, inflater = self, zlib.decompressobj(wbits)

        class Inflater:
            def decompress(self, *given):
                found = inflater.decompress(*given)
                counted.bytes += len(found)
                return found

            def __getattr__(self, name):
                return getattr(inflater, name)

        return Inflater()


@pytest.mark.parametrize("bomb", list(BOMBS))
def test_a_bomb_is_inflated_as_far_as_it_may_hold_results(tmp_path, monkeypatch, bomb):
    """48 members that hold none: one pass inflates at most 96 MiB of them, and the damage says what they are."""
    start, length, words = BOMBS[bomb]
    content = start + (length - len(start) - 4).to_bytes(4, "big") * bool(start)
    member = loose_frame(content + bytes(length - len(content)))
    path = tmp_path / "bomb.stats.gz"
    path.write_bytes(loose_frame(msgpack.packb(["header", HEAD])) + member * 48)
    stats, counted = StatsFile(path), CountedZlib()
    monkeypatch.setattr("bench_common.stats.frame._zlib", counted)
    assert [block.kind for block in stats.blocks(everything=True)][:1] == ["header"]
    assert words in stats.damage
    assert counted.bytes <= 96 * MIB
    monkeypatch.undo()
    status = run_command_line(["report-scenario", "-s", str(path), "-f", str(tmp_path / "report")])
    assert status == ExitCode.INFRASTRUCTURE
