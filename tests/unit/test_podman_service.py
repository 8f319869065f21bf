"""What the service of Podman's API may not exceed, told from the kernel's words about its process."""

import pytest

from bench_worker.engines.docker.podman import parse_limits

HEAD = "Limit                     Soft Limit           Hard Limit           Units     \n"
FILES = "Max open files            1024                 20000                files     \n"
PROCESSES = "Max processes             32768                32768                processes \n"
BOUNDLESS = "Max processes             unlimited            unlimited            processes \n"
WITHOUT = "Name:\tpodman\nCapEff:\t000001fffeffffff\n"
WITH = "Name:\tpodman\nCapEff:\t000001ffffffffff\n"


@pytest.mark.parametrize(
    ("status", "limits", "ulimits"),
    [
        (WITHOUT, HEAD + PROCESSES + FILES, {"nofile": 20000, "nproc": 32768}),
        (WITHOUT, HEAD + BOUNDLESS + FILES, {"nofile": 20000}),
        (WITH, HEAD + PROCESSES + FILES, {}),
    ],
)
def test_what_cannot_be_raised_is_the_most_that_a_container_gets(status, limits, ulimits):
    """Hard limits count, unless the process may raise them or they are none."""
    assert parse_limits(status, limits).ulimits == ulimits
