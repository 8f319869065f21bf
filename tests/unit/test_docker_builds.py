"""Why a build has failed, from what Docker and the step said."""

import pytest

from bench_worker.engines.docker.images import build_failure_reason

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
        (STEP, APT, "a step of it ended with exit code 100; it said: E: Unable to locate package x"),
        (
            STEP,
            ["the package x has no command blogbench", "Removing intermediate container 71"],
            "a step of it ended with exit code 100; it said: the package x has no command blogbench",
        ),
        (STEP, ["one", "two", " ---> Running in 71"], "a step of it ended with exit code 100; it said: two"),
        (STEP, [], "a step of it ended with exit code 100"),
        (
            LOOKUP,
            [],
            f"the image that its Dockerfile begins with is not here, and no registry gives it: {LOOKUP}",
        ),
        ("no space left on device\n", [], "no space left on device"),
    ],
)
def test_the_reason_is_what_the_failed_step_said(error, said, reason):
    """Not the command, which may be a screen long, nor what the builder says of its own."""
    assert build_failure_reason(error, said) == reason
