"""Credentials of a store on their way to workers, near and far, and that nothing that a run leaves has them."""

import pytest
from builders import text_formats
from deadlines import END_S
from secret_search import TOKEN, ProcessWatch, files_with
from workspace import free_ports

SECRET = "never-to-be-seen-7f3a"
"""The key of one user of the store; no other text contains it."""
VARIABLES = ("ST_", "OS_", "AWS_")

JOB = {"objects": {"sizes": "1KiB", "population": 4, "mix": {"create": 1, "read": 4, "update": 1, "delete": 1}}}


@pytest.fixture(autouse=True)
def own_variables(workspace):
    """Only what a test sets says where the store is."""
    for name in list(workspace.environ):
        if name.startswith(VARIABLES):
            del workspace.environ[name]


def scenario_on(workspace, engine="swift", **keys):
    """Write a scenario on a store."""
    given = {"engines": [engine], "job": JOB, "operation_count": 30, "concurrency": 3, **keys}
    return workspace.scenario(**given)


def assert_nowhere(workspace, run):
    """No file of the workspace, and no report, has the secret or a token."""
    assert list(files_with(workspace.folder, SECRET.encode())) == []
    shown = run.out + run.err + "".join(run.report(name) for name in text_formats())
    assert SECRET not in shown
    assert not TOKEN.search(shown.encode())


def write_profile(workspace, store):
    path = workspace.folder / "home" / ".config" / "weighbridge" / "stores.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(f"lab:\n  swift: {{auth_url: '{store.auth_url}', user: 'test:guarded', key: {SECRET}}}\n")
    path.chmod(0o600)
    return path


def test_nothing_that_a_run_leaves_has_a_key_of_the_command_line(workspace, store):
    """Not its files, reports, logs, messages nor arguments; and the user is told of it."""
    flags = ("-A", store.auth_url, "-U", "test:guarded", f"-K{SECRET}", "-v")
    scenario = scenario_on(workspace, allow_failures=True)
    program, stats = workspace.start_run(scenario, *flags)
    with ProcessWatch(SECRET) as watch:
        run = workspace.finish(program, stats)
    assert run.outcomes() == {"done": 30}
    assert "a key, password or token was given on the command line" in run.err
    assert "-K***" in run.header.argv
    assert watch.rounds
    # Until the master has read its arguments they are there for all to see; nothing else may ever show them.
    watch.assert_only_until(program.process.pid)
    assert_nowhere(workspace, run)
    left = [one for one in store.containers() if run.run_id in one]
    assert left == []


def test_a_login_that_is_refused_ends_the_run_before_it_begins(workspace, store):
    """The reason has the user, the URL and where they come from, and not the key."""
    workspace.environ |= {"ST_AUTH": store.auth_url, "ST_USER": "test:nobody", "ST_KEY": SECRET}
    refused = workspace.run(scenario_on(workspace), "-v", status=3)
    assert (
        "refuses user 'test:nobody' or the key (401); they come from the environment (ST_AUTH, ST_KEY" in refused.err
    )
    assert not refused.stats.exists()
    assert list(files_with(workspace.folder, SECRET.encode())) == []
    workspace.environ |= {"ST_USER": "test:guarded"}
    lacking = workspace.run(scenario_on(workspace, job=with_policy("sliver")), status=3)
    assert "has no storage policy 'sliver' (did you mean 'silver'?); it has: gold, silver" in lacking.err


def with_policy(name):
    return {"objects": {**JOB["objects"], "containers": {"policy": name}}}


def test_a_profile_is_all_that_a_scenario_and_the_doctor_need(workspace, store):
    """It is read by the worker; a scenario, and the plan in the stats file, have its name alone."""
    path = write_profile(workspace, store)
    job = {"objects": {**JOB["objects"], "store": {"profile": "lab"}}}
    run = workspace.run(scenario_on(workspace, job=job))
    assert run.outcomes() == {"done": 30}
    path.rename(kept := workspace.folder.parent / "stores.yaml")
    try:
        assert_nowhere(workspace, run)
    finally:
        kept.rename(path)
    doctor = workspace.master("doctor", "--store", "swift:lab", "--format", "json")
    assert '"store swift:lab answers, and accepts the credentials"' in doctor.out
    path.chmod(0o644)
    refused = workspace.run(scenario_on(workspace, job=job), status=3)
    assert f"{path}: others can read it (mode 0644); chmod 600 {path}" in refused.err


def test_credentials_reach_a_worker_of_another_host_over_curve_alone(workspace, store):
    """Its own environment has none; with --insecure the run is refused before a worker can join."""
    keys = workspace.folder / "keys"
    assert workspace.master("keygen", "--key-dir", keys, "--worker", "blade").status == 0
    control, results, work = free_ports(3)
    ports = ("--zmq-control-port", control, "--zmq-results-port", results, "--zmq-work-port", work)
    far = workspace.start(
        "bench-worker", "--zmq-host", "127.0.0.1", "--zmq-control-port", control, "--key", keys / "worker-blade.key",
        "-v", "-c", 3, "--once",
    )  # fmt: skip
    workspace.environ["ST_KEY"] = SECRET
    flags = ("-A", store.auth_url, "-U", "test:guarded", "-K", SECRET)
    listen = ("--zmq-bind-ip", "127.0.0.1", *ports)
    refused = workspace.run(scenario_on(workspace), *listen, "--insecure", *flags, workers=0, status=2)
    assert "credentials of a store go to other hosts over encrypted connections only" in refused.err
    run = workspace.run(scenario_on(workspace), *listen, "--key-dir", keys, *flags, workers=0)
    assert run.outcomes() == {"done": 30}
    assert far.wait_for_exit(END_S).status == 0
    assert SECRET not in far.err + far.out
    assert_nowhere(workspace, run)


def test_the_same_scenario_runs_on_s3(workspace, store):
    """With the keys of AWS's tools, in buckets whose names S3 allows; the server's log agrees with the counts."""
    workspace.environ |= {**store.s3_variables, "AWS_ACCESS_KEY_ID": "test:guarded", "AWS_SECRET_ACCESS_KEY": SECRET}
    before = len(store.requests())
    run = workspace.run(scenario_on(workspace, "s3"))
    assert run.outcomes() == {"done": 30}
    asked = store.requests()[before:]
    reads = run.document["treatments"][0]["operations"]["read[all]"]["n"]
    gets = [one for one in asked if one.method == "GET" and f"{run.run_id}-0-000000/" in one.path]
    assert len(gets) == reads > 0
    assert {one.status for one in gets} == {200}
    assert_nowhere(workspace, run)
