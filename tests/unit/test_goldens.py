"""Reports of recorded runs are what they were: tests/golden, made again by `python tests/goldens.py`."""

import goldens
import pytest


@pytest.mark.parametrize("name", goldens.FORMATS)
@pytest.mark.parametrize("run", goldens.RUNS)
def test_a_report_is_its_golden(run, name):
    """Byte for byte; a difference that is wanted is committed with the change that makes it."""
    expected = goldens.golden(run, name).read_text("utf-8")
    assert goldens.report(run, name) == expected
