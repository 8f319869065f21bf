"""Many users on few objects of a real store: no operation meets another one's object, and what is wrong is found."""

import json
import urllib.error

import pytest
from deadlines import END_S
from relay import ADDRESS, FIRST_READ, Relay
from workspace import UNHURRIED

USERS = {
    "engines": ["swift"],
    "concurrency": 64,
    "operation_count": 500,
    "job": {
        "objects": {
            "sizes": {"min": 0, "max": 5000},
            "population": 10,
            "mix": {"update": 4, "delete": 4, "create": 4, "read": 4, "head": 1, "list": 1},
            "containers": {"count": 3},
            "verify": "full",
        }
    },
}


def objects_requested(store, run_id):
    return [one for one in store.requests() if f"/weighbridge-{run_id}-" in one.path]


def test_sixty_four_users_on_ten_objects_get_no_404(workspace, store):
    """Each job is one operation that succeeds, by the report and by the server's own log; nothing is left."""
    workspace.environ.update(store.swift_variables)
    run = workspace.run(workspace.scenario(**USERS), seconds=END_S)
    assert run.outcomes() == {"done": 500}
    document = run.document
    (treatment,) = document["treatments"]
    done = {name: row["n"] for name, row in treatment["operations"].items() if not name.endswith(".first")}
    assert sum(count for name, count in done.items() if "[" in name) == 500
    requests = objects_requested(store, run.run_id)
    assert [one for one in requests if one.status >= 400] == []
    objects = [one for one in requests if one.path.count("/") == 4]
    filled, cleared = treatment["population"]
    assert (filled["phase"], filled["objects"], filled["failed"]) == ("populate", 10, 0)
    assert (cleared["phase"], cleared["failed"]) == ("clear", 0)
    by_method = {method: sum(one.method == method for one in objects) for method in ("PUT", "DELETE", "HEAD")}
    assert by_method["PUT"] == 10 + done["create[all]"] + done["update[all]"]
    assert by_method["DELETE"] == done["delete[all]"] + cleared["objects"]
    assert by_method["HEAD"] == done["head[all]"]
    assert sum(one.method == "GET" for one in objects) == done["read[all]"]
    assert 10 + done["create[all]"] == by_method["DELETE"], "every object that was made was deleted"
    assert not [name for name in store.containers() if run.run_id in name]


@pytest.mark.parametrize("protocol", ["swift", pytest.param("s3", marks=pytest.mark.slow)])
def test_wrong_bytes_and_missing_objects_are_failures_of_their_own_kind(workspace, store, protocol):
    """Somebody changes three objects when the first job reads: other bytes, fewer bytes, and gone."""
    variables = store.swift_variables if protocol == "swift" else store.s3_variables
    workspace.environ.update({name: value.replace("127.0.0.1", ADDRESS) for name, value in variables.items()})
    job = {"objects": {"sizes": 4000, "population": 5, "mix": {"read": 1}, "verify": "full"}}
    jobs = {"concurrency": 2, "operation_count": 300, "job": job, "allow_failures": True}
    others = store.containers()
    made, names = [], []

    def change():
        made.extend(name for name in store.containers() if name not in others)
        names.extend(sorted(store.objects(made[0])))
        store.open("PUT", f"AUTH_test/{made[0]}/{names[0]}", b"A" * 4000).close()
        store.open("PUT", f"AUTH_test/{made[0]}/{names[1]}", b"A" * 3999).close()
        store.open("DELETE", f"AUTH_test/{made[0]}/{names[2]}").close()

    with Relay([store.port]) as relay:
        relay.at_first(FIRST_READ, change)
        run = workspace.run(workspace.scenario(engines=[protocol], **jobs), *UNHURRIED)
    assert len(names) == 5, "the population"
    errors = {one["kind"]: one for one in run.document["errors"]}
    assert set(errors) == {"wrong-content", "wrong-length", "http-404"}, errors
    assert errors["http-404"]["count"] <= 2, "one that is missing is not asked for again"
    assert f"{names[0]}: byte 0 of the object differs" in errors["wrong-content"]["message"]
    assert f"{names[1]}: 3999 bytes instead of 4000" in errors["wrong-length"]["message"]
    assert run.document["treatments"][0]["jobs"]["done"] > 0
    with pytest.raises(urllib.error.HTTPError):
        store.open("GET", f"AUTH_test/{made[0]}")


def test_a_kept_population_is_used_again_and_left(workspace, store):
    """With --keep all stays; the next run uses the population of the base, and deletes only what it made."""
    workspace.environ.update(store.swift_variables)
    job = {
        "objects": {
            "sizes": 1000,
            "population": 6,
            "mix": {"create": 1, "read": 3},
            "containers": {"base": "users", "count": 2},
        }
    }
    scenario = workspace.scenario(engines=["swift"], concurrency=4, operation_count=40, job=job)
    kept = workspace.run(scenario, "--keep")
    left = {name: store.objects(name) for name in store.containers() if name.startswith("users_")}
    assert {f"users_{number:06d}_default_policy" for number in range(2)} == set(left)
    population = [name for objects in left.values() for name in objects if "-p" not in name]
    created = [name for objects in left.values() for name in objects if "-p" in name]
    assert len(population) == 6
    assert created
    assert all(name.endswith(kept.run_id) for name in created)
    again = workspace.run(scenario)
    filled = again.document["treatments"][0]["population"][0]
    assert (filled["objects"], filled["found"]) == (0, 6)
    after = [name for one in left for name in store.objects(one)]
    assert sorted(after) == sorted(population + created), "the second run deletes only what it made"
    deleted = workspace.master(
        "cleanup-containers", "--store", "swift", "--base", "users", "--yes", "--format", "json"
    )
    assert deleted.status == 0, deleted.err
    assert {row["verdict"] for row in json.loads(deleted.out)} == {"removed"}
    assert not [name for name in store.containers() if name.startswith("users_")]
