"""Changes stats files as no writer would: keys, types, numbers and columns of their blocks, and their bytes.

All that is drawn comes from a `random.Random`, which may be hypothesis's own.
"""

import copy
import io

import msgpack
from builders import chained, loose_frame

from bench_common.stats.blocks import KINDS
from bench_common.stats.frame import FrameReader

ODD = (
    *(None, True, False, 0, 1, -1, 2, 7, 3_000_000, 2**31, 2**53, 2**62, 2**63 - 1, 2**64 - 1, -(2**63), 10**18),
    *(0.5, -0.0, -1.5, 5e-324, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", "x", "job", "native", "\x1b[2J\n", "\u202eé\x00", "\udcff", "x" * 5000),
    *(b"", b"\x00" * 9, b"\x02\x08" + bytes(8)),
    *([], {}, [[]], [None], ["x"], [0] * 70, {"": 0}, {"a": {"a": [{}]}}, [[0, 0, False]], [[0, 0, 0, "x", 1.0]]),
)
"""Values that are in no right place, or in a right one by chance."""


def odd_value(draw):
    """Return one of `ODD` that is the caller's own: what is changed later must not be there in the next example."""
    return copy.deepcopy(draw.choice(ODD))


def packed(value):
    """Return a value in msgpack; text that is no Unicode goes in as it is."""
    return msgpack.packb(value, use_bin_type=True, unicode_errors="surrogatepass")


def payload(kind, body):
    """Return the payload of a block."""
    return packed([kind, body])


def stored_blocks(content):
    """Return the blocks of a file as kinds and bodies, as they are stored."""
    reader, found = FrameReader(io.BytesIO(content)), []
    while (pair := reader.read(())) is not None:
        found.append(pair[0])
    bodies = []
    for kind, data in zip(found, payloads_of(content), strict=True):
        name, body = msgpack.unpackb(data, strict_map_key=False)
        assert name == kind
        bodies.append((kind, body))
    return bodies


def payloads_of(content):
    """Return the payloads of a file."""
    reader, found = FrameReader(io.BytesIO(content)), []
    while (data := reader._payload()) is not None:
        found.append(bytes(data))
    return found


def places(tree):
    """Return every item in maps and lists, as pairs of a container and its key."""
    found, open_ones = [], [tree]
    while open_ones:
        one = open_ones.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one))
        for key in keys:
            found.append((one, key))
            if isinstance(one[key], dict | list):
                open_ones.append(one[key])
    return found


def with_odd_blocks(blocks, draw):
    """Return blocks of which some have an odd item, or stand elsewhere; the bytes are those of one whole file."""
    changed = [(kind, copy.deepcopy(body)) for kind, body in blocks]
    for _ in range(draw.choice((1, 1, 2, 4))):
        at = draw.randrange(len(changed))
        kind, body = changed[at]
        if draw.random() < 0.1:
            changed = _elsewhere(changed, at, draw)
        elif body:
            change_item(body, draw)
            changed[at] = (kind, body)
        if not changed:
            return b""
    return chained(*(payload(*block) for block in changed))


def _elsewhere(blocks, at, draw):
    what, block = draw.choice(("gone", "twice", "last", "other kind", "bare")), blocks[at]
    before, after = blocks[:at], blocks[at + 1 :]
    if what == "gone":
        return before + after
    if what == "twice":
        return [*before, block, block, *after]
    if what == "last":
        return [*before, *after, block]
    if what == "bare":
        return [*before, (block[0], odd_value(draw)), *after]
    return [*before, (draw.choice((*sorted(KINDS), "novelty", "")), block[1]), *after]


def change_item(body, draw):
    """Change an item anywhere in a map that has some."""
    every = places(body)
    # Items of the first level are what readers ask for; of the others there are many.
    container, key = draw.choice([one for one in every if one[0] is body] if draw.random() < 0.3 else every)
    value = container[key]
    what = draw.choice(("odd", "odd", "odd", "gone", "nested", "other", "more", "less", "renamed"))
    if what == "odd":
        container[key] = odd_value(draw)
    elif what == "gone":
        del container[key]
    elif what == "nested":
        container[key] = draw.choice(([value], {"a": value}, [value] * 9))
    elif what == "other":
        other, name = draw.choice(every)
        container[key] = copy.deepcopy(other[name])
    elif what == "renamed" and isinstance(container, dict):
        container[draw.choice(("", "x", "time_ns", "kind", "trial"))] = container.pop(key)
    elif isinstance(value, bytes):
        container[key] = with_odd_bytes(value, draw)
    elif isinstance(value, list) and value:
        container[key] = value[: len(value) // 2] if what == "less" else value * draw.choice((2, 50))
    elif isinstance(value, int) and not isinstance(value, bool):
        container[key] = max(-(2**63), min(2**64 - 1, value + draw.choice((1, -1, 1000, -(10**9), 10**15))))
    elif isinstance(value, str):
        container[key] = value[: len(value) // 2] if what == "less" else value * 3


def with_odd_bytes(content, draw):
    """Return bytes of which some are changed, gone, or there twice."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 3))):
        at = draw.randrange(len(changed) + 1)
        end = min(len(changed), at + draw.choice((1, 2, 8, 100)))
        what = draw.choice(("bit", "bytes", "gone", "twice", "cut", "zeros"))
        if what == "bit" and at < len(changed):
            changed[at] ^= 1 << draw.randrange(8)
        elif what == "bytes":
            changed[at:end] = bytes(draw.randrange(256) for _ in range(end - at))
        elif what == "gone":
            del changed[at:end]
        elif what == "twice":
            changed[at:at] = changed[at:end]
        elif what == "cut":
            del changed[at:]
        elif what == "zeros":
            changed[at:end] = bytes(end - at)
    return bytes(changed)


def with_odd_payloads(payloads, draw):
    """Return a file in which the bytes of one payload are odd, and its checksums fit them."""
    at = draw.randrange(len(payloads))
    odd = with_odd_bytes(payloads[at], draw)
    if draw.random() < 0.2:
        return b"".join(map(loose_frame, [*payloads[:at], odd, *payloads[at + 1 :]]))
    return chained(*payloads[:at], odd, *payloads[at + 1 :])
