"""The CRI's messages: packed and unpacked as protobuf, and logs in its format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_common.treatment import ContainerSettings, Mount
from bench_worker.engines.base import Container
from bench_worker.engines.cri.messages import container_config, pod_config, split_log
from bench_worker.engines.grpc import MalformedMessage, blob, number, pack, text, texts, unpack


@pytest.mark.parametrize(
    ("fields", "packed"),
    [
        ({1: 150}, "089601"),
        ({2: "testing"}, "120774657374696e67"),
        ({3: pack({1: 150})}, "1a03089601"),
        ({1: -2}, "08feffffffffffffffff01"),
        ({1: 0, 2: "", 3: None, 4: [], 5: {}}, ""),
        ({4: ["a", "bc"]}, "2201612202" + "6263"),
        ({6: {"k": "v"}}, "32060a016b120176"),
    ],
)
def test_messages_have_protobufs_wire_format(fields, packed):
    """The first three are the examples of the format's own description."""
    assert pack(fields).hex() == packed


@given(st.integers(-(2**63), 2**63 - 1), st.text(), st.binary(), st.dictionaries(st.text(), st.text()))
def test_what_was_packed_comes_back(whole, words, data, entries):
    """Numbers with their sign, text, bytes and maps; what is missing is empty."""
    fields = unpack(pack({1: whole, 2: words, 300: data, 4: entries}))
    assert number(fields, 1) == whole
    assert text(fields, 2) == words
    assert blob(fields, 300) == data
    assert texts(fields, 4) == entries
    assert (number(fields, 9), text(fields, 9), texts(fields, 9)) == (0, "", {})


@given(st.binary())
def test_arbitrary_bytes_are_a_message_or_malformed(data):
    """Nothing else is raised, whatever a socket answers."""
    try:
        fields = unpack(data)
    except MalformedMessage:
        return
    assert all(values for values in fields.values())


@pytest.mark.parametrize("data", [b"\x80", b"\x0a\x05ab", b"\x0b", b"\x09123", b"\xff" * 12])
def test_a_message_that_is_cut_or_nonsense_is_malformed(data):
    """A number without its end, a text shorter than it says, a kind that there is not."""
    with pytest.raises(MalformedMessage):
        unpack(data)


def test_fields_of_unknown_numbers_and_fixed_width_are_passed_over():
    """A newer runtime may say more than we know."""
    fields = unpack(b"\x09" + bytes(8) + b"\x15" + bytes(4) + pack({3: "x"}))
    assert text(fields, 3) == "x"


def test_a_pod_and_its_container_carry_labels_and_settings(tmp_path):
    """At the field numbers of the CRI's api.proto, version 1."""
    settings = ContainerSettings(
        image="i",
        command=("a", "b"),
        memory_bytes=1 << 26,
        cpus=1.5,
        cpuset="0",
        network="host",
        env={"A": "1"},
        storage=(Mount("volume", "/v", read_only=True),),
    )
    container = Container("c", 1, settings)
    container.labels.update({"weighbridge.run": "r"})
    pod = unpack(pod_config(container, tmp_path))
    assert (text(unpack(blob(pod, 1)), 1), text(pod, 3)) == ("c", str(tmp_path))
    assert texts(pod, 6) == {"weighbridge.run": "r"}
    made = unpack(container_config(container, "i", tmp_path, allow_host_mounts=False))
    assert text(unpack(blob(made, 2)), 1) == "i"
    assert made[4] == [b"a", b"b"]
    assert texts(made, 6) == {"A": "1"}
    assert texts(made, 9) == {"weighbridge.run": "r"}
    mount = unpack(blob(made, 7))
    assert (text(mount, 1), text(mount, 2), number(mount, 3)) == ("/v", f"{tmp_path}/volumes/v", 1)
    resources = unpack(blob(unpack(blob(made, 15)), 1))
    assert [number(resources, field) for field in (1, 2, 4)] == [100_000, 150_000, 1 << 26]
    assert text(resources, 6) == "0"


def test_a_log_is_split_by_stream():
    """Full lines end, partial ones go on; what is no line of the format is left out."""
    lines = [
        b"2026-01-02T03:04:05.6Z stdout F one",
        b"2026-01-02T03:04:05.7Z stderr F oops",
        b"2026-01-02T03:04:05.8Z stdout P tw",
        b"2026-01-02T03:04:05.9Z stdout F o  2",
        b"nonsense",
    ]
    assert split_log(b"\n".join(lines)) == (b"one\ntwo  2\n", b"oops\n")
