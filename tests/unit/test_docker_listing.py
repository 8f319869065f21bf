"""An engine may stumble over an image that goes while it lists them."""

import docker.errors
import pytest

from bench_worker.engines.docker.images import list_images

GONE = 'retrieving parent of image "5c44": locating image with ID "b609": image not known'


class Engine:
    """Stands for an engine's client: fails so many times with these words before it lists its one image."""

    def __init__(self, failures, words=GONE):
        self.failures = failures
        self.words = words
        self.asked = []

    def images(self, **which):
        self.asked.append(which)
        if len(self.asked) <= self.failures:
            raise docker.errors.APIError("500 Server Error", explanation=self.words)
        return [{"Id": "x"}]


def test_it_is_asked_again():
    """With the same words, until it knows."""
    engine = Engine(3)
    assert list_images(engine, all=True) == [{"Id": "x"}]
    assert engine.asked == [{"all": True}] * 4


def test_not_for_ever_and_for_nothing_else():
    """Another error, and one that stays, are the caller's."""
    for engine, asked in ((Engine(1000), 10), (Engine(1, "no space left on device"), 1)):
        with pytest.raises(docker.errors.APIError):
            list_images(engine)
        assert len(engine.asked) == asked
