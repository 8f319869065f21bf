"""Profiles: what is seen while a process works, how it travels, and which files it becomes."""

import json
import sys
import time
import zlib

import msgpack
import pytest

from bench_common.errors import ProtocolError
from bench_common.profiling import Call, Profile, Profiler
from bench_master.run.profiles import MAX_NAME_CHARS, Profiles, render_text, speedscope

OUTER, INNER, OTHER = Call("Crew.work", "ours/crew.py", 10), Call("step", "ours/job.py", 3), Call("wait", "x.py", 1)
PROFILE = Profile(
    2_000_000_000, 4, (OUTER, INNER, OTHER), {(0, 1): 600_000_000, (0,): 300_000_000, (2,): 100_000_000}
)


def packed(**changed):
    """Return the bytes of a profile, with some of its content changed."""
    content = msgpack.unpackb(zlib.decompress(PROFILE.pack()))
    return zlib.compress(msgpack.packb({**content, **changed}))


def busy_for(seconds):
    """Use the processor for a while."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


def test_the_function_that_uses_the_processor_is_seen():
    """A function that does nothing else has nearly all of the time, below its caller."""
    profiler = Profiler()
    profiler.start()
    busy_for(0.08)
    profile = profiler.stop()
    names = [call.function for call in profile.calls]
    mine = names.index("busy_for")
    caller = names.index("test_the_function_that_uses_the_processor_is_seen")
    spent_ns = sum(ns for stack, ns in profile.stacks.items() if mine in stack)
    assert spent_ns > 0.5 * profile.total_ns > 0
    assert all(stack.index(caller) < stack.index(mine) for stack in profile.stacks if mine in stack)
    assert profile.elapsed_ns >= profile.total_ns
    assert profile.samples >= 1


def test_after_its_end_nothing_is_seen():
    """A profiler that was stopped notes nothing more."""
    profiler = Profiler()
    profiler.start()
    samples = profiler.stop().samples
    busy_for(0.03)
    assert profiler.stop().samples == samples


def test_a_signal_within_a_look_counts_for_nothing():
    """Looks that are nested would take time twice, and give some stack less than none."""
    profiler = Profiler()
    profiler._in_handler = True
    profiler._look(0, sys._getframe())
    assert profiler.stop().samples == 0


def test_a_profile_comes_back_as_it_went():
    """pack and unpack are each other's inverse."""
    assert Profile.unpack(PROFILE.pack()) == PROFILE


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        zlib.compress(b"\xc1"),
        zlib.compress(msgpack.packb([1])),
        zlib.compress(bytes(64 << 20)),
        packed(samples="4"),
        packed(samples=-1),
        packed(calls=[["f", "x.py"]]),
        packed(calls=[["f", 7, 1]]),
        packed(stacks=[[1, [3]]]),
        packed(stacks=[[1, [-1]]]),
        packed(stacks=[[True, [0]]]),
    ],
)
def test_what_is_no_profile_is_refused(content):
    """Whatever bytes come in, the refusal is a ProtocolError."""
    with pytest.raises(ProtocolError, match="not a profile"):
        Profile.unpack(content)


def test_names_from_elsewhere_cannot_write_to_the_terminal():
    """Control characters in a name are shown, not sent."""
    profile = Profile.unpack(packed(calls=[["\x1b[2Jf", "a\nb", 1]] * 3))
    assert all("\x1b" not in line and "\n" not in line for line in render_text("x", profile))


def test_the_text_has_shares_of_functions_and_the_tree():
    """Own time, time with all below, and who calls whom, the largest first."""
    lines = list(render_text("master", PROFILE))
    assert lines[:2] == ["Profile of the master", "1.000 s of processor time in 2.000 s (50.0%), 4 samples"]
    assert "  60.0%   60.0%  step  ours/job.py:3" in lines
    assert "  30.0%   90.0%  Crew.work  ours/crew.py:10" in lines
    assert lines[-3:] == [
        "  90.0% Crew.work  ours/crew.py:10",
        "  60.0%   step  ours/job.py:3",
        "  10.0% wait  x.py:1",
    ]


def test_the_drawing_has_each_stack_with_its_time():
    """In speedscope's format: frames once, stacks as indices of them, a weight for each."""
    document = speedscope("master", PROFILE)
    (drawn,) = document["profiles"]
    assert [frame["name"] for frame in document["shared"]["frames"]] == ["Crew.work", "step", "wait"]
    assert (drawn["samples"], drawn["weights"]) == ([[0, 1], [0], [2]], [600_000_000, 300_000_000, 100_000_000])
    assert drawn["endValue"] == sum(drawn["weights"])


def test_the_files_lie_beside_the_stats_file(tmp_path):
    """A text and a drawing of the master and of each worker, named after the stats file."""
    profiles = Profiles(tmp_path / "run.stats.gz")
    profiles.start()
    profiles.expect("w-1")
    profiles.add("w-1", PROFILE.pack())
    written = profiles.finish()
    assert [path.name for path in written] == ["run.master.profile.txt", "run.worker-w-1.profile.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "run.master.profile.speedscope.json",
        "run.master.profile.txt",
        "run.worker-w-1.profile.speedscope.json",
        "run.worker-w-1.profile.txt",
    ]
    assert "Profile of the load process of worker w-1\n" in written[1].read_text()
    assert json.loads((tmp_path / "run.worker-w-1.profile.speedscope.json").read_text())["exporter"] == "weighbridge"


def test_any_id_gives_a_file_of_its_own_in_the_folder(tmp_path):
    """An id leads neither out of the folder, nor to another's file, nor to a name that no file system takes."""
    profiles = Profiles(tmp_path / "run.stats.gz")
    bases = [profiles.base(name) for name in ("../../x", "a/b", "a b", "a-b", "ü" * 128, "..", "")]
    assert {base.parent for base in bases} == {tmp_path}
    assert len(set(bases)) == len(bases)
    assert max(len(base.name.encode()) for base in bases) <= MAX_NAME_CHARS + len("run.worker-.profile")
    assert profiles.base("a b") == bases[2]


def test_a_stats_file_of_any_name_has_profiles_beside_it(tmp_path):
    """Without the usual suffix the whole name is kept."""
    assert Profiles(tmp_path / "run.bin").base("w").name == "run.bin.worker-w.profile"


def test_what_is_missing_or_cannot_be_written_is_told(tmp_path, caplog):
    """Neither a worker that sent nothing nor a folder that is gone costs more than a warning."""
    profiles = Profiles(tmp_path / "gone" / "run.stats.gz")
    profiles.start()
    profiles.expect("silent")
    assert profiles.finish() == []
    assert "no profile received from worker silent" in caplog.text
    assert "run.master.profile: the profile cannot be written: No such file" in caplog.text
