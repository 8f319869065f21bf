"""Images of a Docker Engine: why a build failed, and a list that an image vanishes from."""

import docker.errors
import pytest

from bench_worker.engines.docker.images import build_failure_reason, list_images, removal_objection

STEP = "The command '/bin/sh -c set -e;     apt-get install \"$PACKAGE\"' returned a non-zero code: 100"
LOOKUP = 'Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: no such host'
APT = [
    "Step 5/10 : RUN set -e",
    " ---> Running in 71",
    "Reading package lists...",
    "E: Unable to locate package x",
    "",
]


@pytest.mark.parametrize(
    ("error", "said", "reason"),
    [
        (STEP, APT, "a build step failed with exit code 100: E: Unable to locate package x"),
        (
            STEP,
            ["the package x has no command blogbench", "Removing intermediate container 71"],
            "a build step failed with exit code 100: the package x has no command blogbench",
        ),
        (STEP, ["one", "two", " ---> Running in 71"], "a build step failed with exit code 100: two"),
        (STEP, [], "a build step failed with exit code 100"),
        (
            LOOKUP,
            [],
            f"the base image of its Dockerfile is not on this host and cannot be pulled: {LOOKUP}",
        ),
        ("no space left on device\n", [], "no space left on device"),
    ],
)
def test_the_reason_is_what_the_failed_step_said(error, said, reason):
    """Not the command, which may be a screen long, nor what the builder says of its own."""
    assert build_failure_reason(error, said) == reason


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


@pytest.mark.parametrize(
    ("image", "tags", "stays"),
    [
        ("h/a:1", ["h/a:1"], False),
        ("h/a:1", ["h/a:1", "h/b:1"], True),
        ("h/a:1@sha256:0", ["h/a:1"], False),
        ("h/a@sha256:0", ["h/a:1"], True),
        ("h/a:1@sha256:0", ["h/a:2"], True),
    ],
)
def test_an_image_goes_with_its_own_names_only(image, tags, stays):
    """The tag of a reference by tag and digest is its own; a tag that it does not name is somebody's."""
    facts = {"Id": "i", "RepoTags": tags, "RepoDigests": ["h/a@sha256:0"]}
    assert bool(removal_objection(image, facts, [])) == stays
