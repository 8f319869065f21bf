"""Profiles: what is sampled while a process works, how it travels, and which files it becomes."""

import json
import time
import tracemalloc
import zlib

import msgpack
import pytest

from bench_common.errors import ProtocolError
from bench_common.profiling import MAX_UNPACKED_BYTES, Profile, Profiler
from bench_master.run.profiles import MAX_NAME_CHARS, Profiles

PROFILE = Profile("Profile of the load process of worker w-1\n", '{"exporter": "pyinstrument"}')


def packed(content):
    """Return bytes as a profile is packed, with any content."""
    return zlib.compress(msgpack.packb(content))


def busy_for(seconds):
    """Use the CPU for a while."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


def test_the_function_that_uses_the_cpu_is_seen():
    """Text and drawing name the function and its caller; the text begins with the title."""
    profiler = Profiler("test")
    profiler.start()
    busy_for(0.1)
    profile = profiler.stop()
    assert profile.text.startswith("Profile of the test\n")
    frames = [frame["name"] for frame in json.loads(profile.speedscope)["shared"]["frames"]]
    for name in ("busy_for", "test_the_function_that_uses_the_cpu_is_seen"):
        assert name in profile.text
        assert name in frames


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        zlib.compress(b"\xc1"),
        zlib.compress(bytes(64 << 20)),
        packed(["text"]),
        packed(["text", "json", "more"]),
        packed(["text", 7]),
        packed([b"text", "json"]),
        packed({"text": "json"}),
    ],
)
def test_anything_else_is_refused(content):
    """Whatever bytes arrive, the refusal is a ProtocolError."""
    with pytest.raises(ProtocolError, match="not a profile"):
        Profile.unpack(content)


def test_a_profile_of_something_else_takes_no_memory():
    """Millions of empty maps in a few KiB are refused before an object is made of them."""
    count = MAX_UNPACKED_BYTES - 16
    packed = zlib.compress(b"\x92\xdd" + count.to_bytes(4, "big") + b"\x80" * count + b"\xa0")
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="not a profile: ValidationError"):
        Profile.unpack(packed)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MAX_UNPACKED_BYTES


def test_names_from_elsewhere_cannot_write_to_the_terminal():
    """Control characters are shown, not sent; lines stay lines."""
    profile = Profile.unpack(packed(["\x1b[2Jf\nb", "{}"]))
    assert profile.text == "\\x1b[2Jf\nb"


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
    assert json.loads((tmp_path / "run.worker-w-1.profile.speedscope.json").read_text())["exporter"] == "pyinstrument"


def test_any_id_gives_a_file_of_its_own_in_the_folder(tmp_path):
    """An id leads neither out of the folder, nor to another's file, nor to a name that no file system takes."""
    profiles = Profiles(tmp_path / "run.stats.gz")
    bases = [profiles.base(name) for name in ("../../x", "a/b", "a b", "a-b", "ü" * 128, "..", "")]
    assert {base.parent for base in bases} == {tmp_path}
    assert len(set(bases)) == len(bases)
    assert max(len(base.name.encode()) for base in bases) <= MAX_NAME_CHARS + len("run.worker-.profile")
    assert profiles.base("a b") == bases[2]


def test_a_missing_profile_or_folder_is_a_warning(tmp_path, caplog):
    """Neither a worker that sent nothing nor a folder that is gone costs more than a warning."""
    profiles = Profiles(tmp_path / "gone" / "run.stats.gz")
    profiles.start()
    profiles.expect("silent")
    assert profiles.finish() == []
    assert "no profile received from worker silent" in caplog.text
    assert "run.master.profile: the profile cannot be written: No such file" in caplog.text
