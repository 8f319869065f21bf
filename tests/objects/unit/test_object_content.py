"""The content of objects, and its verification."""

from __future__ import annotations

import hashlib
import random
import zlib
from itertools import pairwise

import pytest

from bench_features.objects.worker.content import (
    EDGE_BYTES,
    PATTERN_BYTES,
    Checker,
    content_md5,
    content_of,
    is_md5,
)

PATH = "weighbridge-0123456789ab-0-000001/tiny_000301-p3"
SIZES = (0, 1, 40, 70, 71, 4096, 65536, PATTERN_BYTES - 1, PATTERN_BYTES, PATTERN_BYTES + 1, 3 * PATTERN_BYTES + 77)


def _content(path: str, generation: int, size: int) -> bytes:
    return b"".join(content_of(path, generation, size))


def _check(checker: Checker, body: bytes, seed: int = 0) -> tuple[str, str] | None:
    """Give a body to a checker in pieces of any length."""
    draw, view, at = random.Random(seed), memoryview(bytearray(body)), 0
    while at < len(view):
        length = draw.choice((1, 96, 1000, 65536, 300_000))
        checker(view[at : at + length])
        at += length
    return checker.verdict()


@pytest.mark.parametrize("size", SIZES)
def test_content_has_its_size_and_passes_at_every_level_however_it_is_cut(size: int) -> None:
    body = _content(PATH, 2, size)
    assert len(body) == size
    assert content_md5(PATH, 2, size) == hashlib.md5(body).hexdigest()
    for seed in range(3):
        for level in ("length", "edges", "full"):
            assert _check(Checker(level, PATH, 2, size), body, seed) is None, (level, seed)


def test_content_follows_from_path_and_generation_alone_and_differs_by_both() -> None:
    bodies = [
        _content(path, generation, 4096)
        for path in (PATH, PATH.replace("301", "302"), f"other/{PATH}")
        for generation in range(50)
    ]
    assert len(set(bodies)) == len(bodies)
    assert len({body[200:] for body in bodies}) == len(bodies), "they differ beyond their headers, too"
    assert _content(PATH, 0, 5000) == _content(PATH, 0, 5000)


def test_content_is_views_of_one_pattern_and_no_compressor_makes_it_smaller() -> None:
    pieces = content_of(PATH, 0, 5 * PATTERN_BYTES)
    assert len(pieces) <= 1 + 2 * 6
    assert len({id(piece.obj) for piece in pieces[1:] if isinstance(piece, memoryview)}) == 1
    body = b"".join(pieces)
    assert len(zlib.compress(body, 9)) > 0.999 * len(body)
    blocks = [body[at : at + 4096] for at in range(0, len(body) - 4096, 4096)]
    assert len(set(blocks)) == len(blocks)


def test_a_wrong_byte_is_found_wherever_it_is_and_its_place_is_told() -> None:
    draw = random.Random(7)
    for size in (1, 50, 4096, 2 * PATTERN_BYTES + 5):
        body = _content(PATH, 1, size)
        for place in {0, size - 1, size // 2, *(draw.randrange(size) for _ in range(10))}:
            wrong = bytearray(body)
            wrong[place] ^= 1 + draw.randrange(255)
            verdict = _check(Checker("full", PATH, 1, size), bytes(wrong), place)
            assert verdict == ("wrong-content", f"byte {place} of the object differs"), (size, place)
            at_edge = place < EDGE_BYTES or place >= size - EDGE_BYTES
            assert (_check(Checker("edges", PATH, 1, size), bytes(wrong), place) is not None) == at_edge
            assert _check(Checker("length", PATH, 1, size), bytes(wrong)) is None


def test_another_objects_content_is_named() -> None:
    verdict = _check(Checker("edges", PATH, 1, 4096), _content("there/small_000002", 7, 4096))
    assert verdict is not None
    assert verdict[0] == "wrong-content"
    assert verdict[1].endswith("this is the content of there/small_000002, generation 7")


@pytest.mark.parametrize("level", ["length", "edges", "full"])
def test_too_few_and_too_many_bytes_are_a_wrong_length(level: str) -> None:
    body = _content(PATH, 0, 5000)
    for got in (body[:-1], b"", body + b"x"):
        verdict = _check(Checker(level, PATH, 0, 5000), got)  # type: ignore[arg-type]
        assert verdict == ("wrong-length", f"{len(got)} bytes instead of 5000")


def test_ranges_are_checked_against_their_part_of_the_object() -> None:
    size = 2 * PATTERN_BYTES + 333
    body = _content(PATH, 4, size)
    draw = random.Random(3)
    for _ in range(40):
        begin = draw.choice((0, 5, draw.randrange(size)))
        length = draw.choice((1, 100, 70_000, 1_500_000))
        part = body[begin : begin + length]
        for level in ("edges", "full"):
            checker = Checker(level, PATH, 4, size, begin=begin, length=length)  # type: ignore[arg-type]
            assert _check(checker, part) is None
        shifted = body[begin + 1 : begin + 1 + len(part)]
        if len(shifted) == len(part):
            checker = Checker("full", PATH, 4, size, begin=begin, length=length)
            assert _check(checker, shifted) is not None


def test_only_32_hex_digits_are_an_md5() -> None:
    assert is_md5(content_md5(PATH, 0, 10))
    for other in ("", "d41d8cd98f00b204e9800998ecf8427e-3", '"d41d8cd98f00b204e9800998ecf8427e"', "D" * 32):
        assert not is_md5(other)


def test_neighbouring_parts_of_an_object_come_from_different_places_of_the_pattern() -> None:
    pieces = [piece for piece in content_of(PATH, 0, 20 * PATTERN_BYTES)[1:] if len(piece) > 64]
    assert all(bytes(one[:64]) != bytes(other[:64]) for one, other in pairwise(pieces))
