"""The generated documents of docs/reference are what `script/reference` writes now, and docutils reads them."""

import pytest
from documents import ROOT, tree
from reference_pages import documents

REFERENCE = ROOT / "docs" / "reference"
WRITTEN = documents()


def test_no_other_document_is_there():
    """What has no source any more is deleted."""
    assert {path.name for path in REFERENCE.iterdir()} == set(WRITTEN)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_document_is_fresh(name):
    """As the program is: call `script/reference` if this fails."""
    assert (REFERENCE / name).read_text("utf-8") == WRITTEN[name]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_document_is_valid(name):
    """docutils has no warning, so that a code host renders it."""
    assert tree(REFERENCE / name).get("title")
