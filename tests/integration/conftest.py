"""Fixtures that many modules have in common: a workspace, and a tiny image."""

import pytest
from busybox_image import import_image, remove_image
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
