"""What is asked of a store before a run: a container is made in it and deleted again."""

from __future__ import annotations

import pytest
from memory_store import MemoryStore
from msgspec.structs import replace

from bench_features.objects.common.job import Objects, SizeClass, Sizes
from bench_features.objects.worker import population
from bench_features.objects.worker.base import StoreAnswer
from bench_features.objects.worker.host import StoreHost, find_write_problem
from bench_features.objects.worker.names import run_of_container

JOB = Objects((SizeClass("tiny", Sizes("fixed", 10, 10), (("read", 1.0),), population=4),), containers=3)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "PAUSES_S", (0.0,))


def test_a_container_is_made_and_deleted_again() -> None:
    """One that a clean-up would know, if it stayed."""
    store, asked = MemoryStore(), []
    store.answer = lambda verb, path: asked.append((verb, path))
    assert find_write_problem(store, JOB) == []
    assert store.content == {}
    (made, name), (removed, again) = asked
    assert (made, removed) == ("MAKE", "REMOVE")
    assert name == again
    assert run_of_container(name)


def test_a_store_that_makes_no_container_is_refused_in_its_own_words() -> None:
    store = MemoryStore()
    store.answer = lambda verb, _path: StoreAnswer("http-403", "set AWS_REGION=eu-west-7") if verb == "MAKE" else None
    (problem,) = find_write_problem(store, JOB)
    assert problem.startswith("memory:: container weighbridge-")
    assert problem.endswith("cannot be made: set AWS_REGION=eu-west-7 (http-403)")


def test_a_failure_that_passes_refuses_no_store() -> None:
    store = MemoryStore()
    answers = iter([StoreAnswer("http-503", "busy", status=503)])
    store.answer = lambda _verb, _path: next(answers, None)
    assert find_write_problem(store, JOB) == []
    assert store.content == {}


def test_a_container_of_a_base_that_is_there_is_enough() -> None:
    """Whoever may only read in it is asked for no more."""
    store = MemoryStore()
    job = replace(JOB, container_base="lab")
    store.answer = lambda verb, _path: StoreAnswer("http-403", "read only") if verb == "MAKE" else None
    store.content = {"lab_000000_default_policy": {}}
    assert find_write_problem(store, job) == []
    store.content = {}
    store.answer = lambda verb, path: StoreAnswer("http-404", "none") if (verb, path[:3]) == ("LIST", "lab") else None
    assert find_write_problem(store, job) == []
    assert store.requests["MAKE"] == store.requests["REMOVE"] == 1


def test_where_a_store_is_reached_is_known_without_asking_it() -> None:
    """Its endpoints and its login: who listens there on this host is measured, and disturbs nothing."""
    job = Objects((), endpoints=("http://10.0.0.1:8080/v1/AUTH_x", "https://store.example/v1/AUTH_x"))
    variables = {"ST_AUTH": "http://127.0.0.1:9000/auth/v1.0", "ST_USER": "u", "ST_KEY": "k"}
    assert list(StoreHost().servers("swift", job, variables)) == [
        ("10.0.0.1", 8080),
        ("store.example", 443),
        ("127.0.0.1", 9000),
    ]
    assert list(StoreHost().servers("s3", Objects(()), {"AWS_ENDPOINT_URL": "http://[::1]:7070"})) == [("::1", 7070)]
