"""Reports of recorded runs are what they were: tests/golden, made again by `python tests/goldens.py`."""

import re
import zlib

import goldens
import pytest
from builders import members_of


@pytest.mark.parametrize(("run", "name"), goldens.wanted())
def test_a_report_is_its_golden(run, name):
    """Byte for byte; a difference that is wanted is committed with the change that makes it."""
    expected = goldens.golden(run, name).read_text("utf-8")
    assert goldens.report(run, name) == expected


@pytest.mark.parametrize("run", goldens.RECORDED)
def test_a_recorded_run_names_no_home_or_checkout(run):
    """What is published tells how to make the run again, not on whose machine it was made."""
    text = b"".join(zlib.decompressobj(31).decompress(one) for one in members_of(goldens.RECORDED[run].read_bytes()))
    assert not re.findall(rb"/(?:home|root|work|srv|mnt|Users|var/folders)/[\w./-]*", text)
