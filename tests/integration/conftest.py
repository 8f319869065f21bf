"""Fixtures that many modules have in common: a workspace, and a tiny image."""

import pytest
from busybox_image import import_image, remove_image, skip_or_fail
from postgresql import PostgresqlServer, find_programs
from real_store import RealKeystone, RealStore
from workspace import Workspace

from bench_worker.engines.oci import images as oci_images


@pytest.fixture
def workspace(tmp_path):
    with Workspace(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def image():
    name = import_image()
    yield name
    remove_image(name)
    oci_images.prune()


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """Return a real object store, Swift with S3, which starts in about a second."""
    with RealStore(tmp_path_factory.mktemp("store") / "home") as started:
        yield started


@pytest.fixture(scope="session")
def keystone(store):
    """Return a Keystone before the store."""
    with RealKeystone(store) as started:
        yield started


@pytest.fixture(scope="session")
def postgresql():
    """Return a PostgreSQL server, which starts in some seconds."""
    programs = find_programs()
    if programs is None:
        skip_or_fail("no PostgreSQL server; apt-get install postgresql")
    with PostgresqlServer(programs) as started:
        yield started


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def archive_url(request, tmp_path_factory):
    """Return the address of an archive that nobody has made yet, in either database.

    PostgreSQL is slow: tests of what it may do in another way are marked `either_database`, and use both always.
    """
    folder = tmp_path_factory.mktemp("kept") / "archive"
    return str(folder) if request.param == "sqlite" else request.getfixturevalue("postgresql").url(folder)
