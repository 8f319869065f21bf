"""What runs left in an object store: found and deleted by the exact form of names."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_store import MemoryStore, error_of

from bench_common.errors import InfrastructureError, UsageError
from bench_features.objects.common.access import find_accesses
from bench_features.objects.master.commands import contents
from bench_features.objects.worker import population
from bench_features.objects.worker.leftovers import LeftContainer, find_containers, remove_containers
from bench_master.commands.cleanup_containers import render

RUN, OTHER = "3f2a9c1b04de", "000000000000"
OURS = f"weighbridge-{RUN}-0-000001"
FOREIGN = {"weighbridge-backups": {"tiny_000001": b""}, "photos": {f"tiny_000001-p1-{RUN}": b""}}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "PAUSES_S", (0.0,))
    monkeypatch.setattr(population, "OTHERS_S", 0.02)
    monkeypatch.setattr(population, "OTHERS_POLL_S", 0.005)
    monkeypatch.setattr("bench_features.objects.worker.leftovers.PAGE", 7)


def _store() -> MemoryStore:
    store = MemoryStore()
    store.page = 7
    store.content = {
        **{name: dict(objects) for name, objects in FOREIGN.items()},
        OURS: {f"tiny_{number:06d}": b"" for number in range(1, 31)} | {"tiny_000031-p4": b""},
        f"weighbridge-kept-{OTHER}-1-000000": {"tiny_000001": b""},
        f"weighbridge-{RUN}-0-000002": {"tiny_000002": b"", "thesis.pdf": b""},
        "ssbench_000000_default_policy": {"tiny_000001": b"", f"tiny_000009-p1-{RUN}": b""},
        "ssbench_backup": {"tiny_000001": b""},
    }
    return store


def test_only_containers_of_the_exact_form_are_found() -> None:
    store = _store()
    assert find_containers(store) == [
        LeftContainer(OURS, RUN, 31, 0),
        LeftContainer(f"weighbridge-{RUN}-0-000002", RUN, 1, 1),
        LeftContainer(f"weighbridge-kept-{OTHER}-1-000000", f"kept-{OTHER}", 1, 0),
    ]
    assert [one.name for one in find_containers(store, f"kept-{OTHER}")] == [f"weighbridge-kept-{OTHER}-1-000000"]
    assert find_containers(store, base="ssbench")[-1] == LeftContainer("ssbench_000000_default_policy", "", 2, 0)


def test_what_is_ours_is_deleted_and_what_is_not_stays_and_is_named() -> None:
    store = _store()
    found = find_containers(store, base="ssbench")
    assert remove_containers(store, found) == {f"weighbridge-{RUN}-0-000002": "1 objects in it are not ours"}
    assert store.content == {
        **FOREIGN,
        f"weighbridge-{RUN}-0-000002": {"thesis.pdf": b""},
        "ssbench_backup": {"tiny_000001": b""},
    }
    assert find_containers(store, base="ssbench") == [LeftContainer(f"weighbridge-{RUN}-0-000002", RUN, 0, 1)]


def test_of_one_run_only_what_it_created_is_deleted_from_a_base() -> None:
    store = _store()
    found = find_containers(store, RUN, "ssbench")
    assert found[-1] == LeftContainer("ssbench_000000_default_policy", "", 1, 1)
    remove_containers(store, found, run_id=RUN)
    assert store.content["ssbench_000000_default_policy"] == {"tiny_000001": b""}
    assert f"weighbridge-kept-{OTHER}-1-000000" in store.content


def test_what_could_not_be_deleted_is_told_with_its_reason() -> None:
    store = _store()
    store.answer = lambda verb, _path: error_of(403) if verb == "DELETE" else None
    why = remove_containers(store, find_containers(store, RUN)[:1], run_id=RUN)
    assert list(why) == [OURS]
    assert why[OURS].startswith(f"{OURS}/tiny_0000")
    assert why[OURS].endswith("http-403: status 403")


def test_a_store_that_does_not_list_is_an_error() -> None:
    store = _store()
    store.answer = lambda verb, _path: error_of(403) if verb == "LIST" else None
    with pytest.raises(InfrastructureError, match="does not list weighbridge-3f2a9c1b04de-0-000001: status 403"):
        find_containers(store)


def test_the_listing_says_how_many_objects_are_ours() -> None:
    row = {
        "engine": "swift",
        "what": "container",
        "identity": f"swift:{OURS}",
        "name": OURS,
        "run_id": RUN,
        "age_s": None,
    }
    text = render(
        [{**row, "objects": 31, "others": 2, "removed": False, "verdict": "listed", "why": "a dry run"}], contents
    )
    assert [part.strip() for part in text.splitlines()[0].split("  ") if part] == [
        "listed",
        f"swift container {OURS}",
        "31 objects and 2 that are not ours",
        f"run {RUN}",
    ]


def test_a_store_is_named_by_profile_protocol_or_url(tmp_path: Path) -> None:
    swift = {"ST_AUTH": "http://a/auth/v1.0", "ST_USER": "u:u", "ST_KEY": "k", "XDG_CONFIG_HOME": str(tmp_path)}
    aws = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "HOME": str(tmp_path)}
    assert [one.store for one in find_accesses("swift", swift)] == ["swift"]
    assert find_accesses("http://b:1/v1/AUTH_u", swift)[0].endpoints == ("http://b:1/v1/AUTH_u",)
    assert find_accesses("http://b:1", aws)[0].store == "s3"
    with pytest.raises(UsageError, match="user or password"):
        find_accesses("http://me:secret@b", swift)
    folder = tmp_path / "weighbridge"
    folder.mkdir(parents=True)
    path = folder / "stores.yaml"
    path.write_text("lab:\n  swift: {auth_url: http://c/auth/v1.0, user: u, key: k}\n  s3: {endpoint: http://d}\n")
    path.chmod(0o600)
    assert [one.store for one in find_accesses("lab", swift)] == ["swift", "s3"]
    with pytest.raises(
        UsageError, match=r"there is no profile 'lap'; did you mean 'lab'\?|there is no profile 'lap'"
    ):
        find_accesses("lap", swift)
