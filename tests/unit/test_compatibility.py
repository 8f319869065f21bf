"""Whether a worker can do what the plan asks: said before anything runs, with every reason."""

import pytest

from bench_common.requirements import GRACE_STEP
from bench_common.treatment import ContainerSettings, Lifecycle, Mount, Operation, Treatment
from bench_master.run.preflight import check_compatibility

DOCKER = {
    "name": "docker",
    "usable": True,
    "operations": ["run", "remove"],
    "settings": ["image", "storage"],
    "inapplicable": [],
    "details": {},
}


def treatment(**fields):
    job = Lifecycle((Operation("run", "run"), Operation("remove", "remove")))
    return Treatment(0, {}, fields.pop("environment", None), "docker", job, **fields)


def compatibility_of(*treatments, slots=64, noop=False, **info):
    info = {"engines": {"docker": DOCKER}, **info}
    return check_compatibility(treatments, environment="local", slots=slots, info=info, noop=noop)


def test_a_fit_worker_has_no_reasons():
    """What can be done is not refused."""
    assert compatibility_of(treatment()).reasons == ()


def test_too_few_slots_are_a_reason():
    """A worker with fewer slots than the concurrency would run another treatment than the plan's."""
    assert "8 jobs in flight" in compatibility_of(treatment(concurrency=8), slots=4).reasons[0]


def test_an_unusable_engine_is_told_apart():
    """An engine that does not answer is broken infrastructure, with its reason and what to do."""
    broken = {"name": "docker", "usable": False, "reason": "no socket", "advice": "start dockerd"}
    found = compatibility_of(treatment(), engines={"docker": broken})
    assert (found.unusable, found.reasons) == (True, ("engine docker cannot be used: no socket; start dockerd",))


def test_a_worker_without_the_engine_is_refused():
    """An engine that the hello does not list is not there."""
    assert compatibility_of(treatment(), engines={}).reasons == ("it has no engine 'docker'",)


@pytest.mark.parametrize("number", ["abc", "nan", "-1", "inf", ""])
def test_a_malformed_number_in_an_engines_details_refuses_the_worker(number):
    """A detail that should be a number of seconds and is none is a reason, and no exception."""
    odd = {**DOCKER, "details": {**DOCKER.get("details", {}), GRACE_STEP: number}}
    (reason,) = compatibility_of(treatment(), engines={"docker": odd}).reasons
    assert f"reports {GRACE_STEP} = {number!r}" in reason


def test_host_directories_need_the_workers_leave():
    """A host mount is possible only where the worker was started with leave for it."""
    mounted = treatment(container=ContainerSettings(storage=(Mount("host", "/srv", "/data"),)))
    assert "--allow-host-mounts" in compatibility_of(mounted).reasons[0]
    assert compatibility_of(mounted, allow_host_mounts=True).reasons == ()


def test_a_log_driver_that_writes_elsewhere_needs_the_workers_leave():
    """It is told before the run, with the option; an engine without log drivers ignores it."""
    engine = {**DOCKER, "settings": [*DOCKER["settings"], "log_driver"]}
    logged = treatment(container=ContainerSettings(log_driver="syslog"))
    (reason,) = compatibility_of(logged, engines={"docker": engine}).reasons
    assert reason.startswith("log driver 'syslog' writes outside")
    assert "--allow-host-mounts" in reason
    assert compatibility_of(logged, engines={"docker": engine}, allow_host_mounts=True).reasons == (reason,)
    assert compatibility_of(logged, engines={"docker": engine}, allow_foreign=True).reasons == ()
    without = {**DOCKER, "inapplicable": ["log_driver"]}
    assert compatibility_of(logged, engines={"docker": without}).reasons == ()


def test_treatments_of_other_environments_do_not_matter():
    """A worker is held against what it would run, not against the whole plan."""
    assert compatibility_of(treatment(environment="control", concurrency=1000)).reasons == ()


def test_a_noop_run_needs_no_engine():
    """With the execution free no engine has to be there, but slots still do."""
    assert compatibility_of(treatment(), engines={}, noop=True).reasons == ()
    assert compatibility_of(treatment(concurrency=9), slots=1, noop=True).reasons != ()
