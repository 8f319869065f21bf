"""Open files: the limit is raised for many workers, left alone for few, and its end is told beforehand."""

import resource

import pytest

from bench_common.errors import InfrastructureError
from bench_master.run.sockets import raise_fd_limit

FREE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "workers", "then"),
    [
        ((1024, 4096), 10, None),
        ((1024, 4096), 200, (3456, 4096)),
        ((1024, FREE), 1000, (16256, FREE)),
        ((FREE, FREE), 10**6, None),
    ],
)
def test_there_is_room_for_every_worker(monkeypatch, limits, workers, then):
    """The soft limit becomes what is needed and no more; one that suffices is not touched."""
    made = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: made.append(new))
    raise_fd_limit(workers)
    assert made == ([then] if then else [])


def test_a_hard_limit_is_told_with_what_to_do(monkeypatch):
    """More workers than the system allows files for are refused before anything is bound."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    with pytest.raises(InfrastructureError, match="200 workers take 3456 open files, and this process may have 1024"):
        raise_fd_limit(200)
