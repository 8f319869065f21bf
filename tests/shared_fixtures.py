"""Fixtures of tests that use real things: a workspace, a tiny image, servers, a browser.

What a fixture needs is imported when it is set up: most tests, in most processes, use none of them.
"""

import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def workspace(tmp_path):
    """Return a folder to run commands in; what was started there ends with the test."""
    from workspace import Workspace

    with Workspace(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def image():
    """Return the name of a tiny image, in Docker and for the runtimes that have no images of their own."""
    from busybox_image import import_image, remove_image

    from bench_worker.engines.oci import images as oci_images

    name = import_image()
    yield name
    remove_image(name)
    oci_images.prune()


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """Return a real object store, Swift with S3, which starts in about a second."""
    from real_store import RealStore

    with RealStore(tmp_path_factory.mktemp("store") / "home") as started:
        yield started


@pytest.fixture(scope="session")
def keystone(store):
    """Return a Keystone before the store."""
    from real_store import RealKeystone

    with RealKeystone(store) as started:
        yield started


@pytest.fixture
def archive_folder(tmp_path_factory):
    """Return the folder of an archive that nobody has made yet."""
    return str(tmp_path_factory.mktemp("kept") / "archive")


@pytest.fixture(scope="session")
def chromium():
    """Start Chromium, one for all tests of pages; in CI a missing one is a failure."""
    from busybox_image import skip_or_fail
    from deadlines import START_S
    from eyes import find_chromium
    from playwright.sync_api import sync_playwright

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
    from eyes import Eyes

    made = Eyes(chromium)
    yield made
    made.close()


@pytest.fixture
def open_folder():
    """A directory for private ones that everybody may pass through, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)
