"""One browser for all tests of pages, and for each test contexts of its own."""

import pytest

pytest.register_assert_rewrite("eyes")  # its assertions show what they compared, too

from busybox_image import skip_or_fail
from deadlines import START_S
from eyes import Eyes, find_chromium
from playwright.sync_api import sync_playwright
from workspace import Workspace


@pytest.fixture(scope="session")
def chromium():
    """Start Chromium; in CI a missing one is a failure."""
    path = find_chromium()
    if path is None:
        skip_or_fail("Chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        # A container and root have no sandbox; the pages of these tests are our own.
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=path, args=options, timeout=1000 * START_S)
        yield browser
        browser.close()


@pytest.fixture
def eyes(chromium):
    """Return what opens pages; they are closed after the test."""
    made = Eyes(chromium)
    yield made
    made.close()


@pytest.fixture
def workspace(tmp_path):
    with Workspace(tmp_path) as made:
        yield made
