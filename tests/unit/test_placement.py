"""Where services run that are not on the host of their job: who lends them, who takes the jobs, what is checked."""

from dataclasses import dataclass

import msgspec
import pytest
from msgspec.structs import replace

from bench_common.errors import ScenarioError
from bench_common.job_kind import read_job
from bench_common.requirements import (
    choose_host,
    job_workers,
    requirements_for_worker,
    services_hosted_by,
    unplaced_services,
)
from bench_common.treatment import ContainerSettings, Treatment
from bench_master.coordinator import Coordinator, Policy
from bench_master.coordinator import messages as act
from bench_master.coordinator import messages as ev
from bench_master.plan import Trial
from bench_master.run.preflight import check_compatibility
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_workloads.ab import WEBBENCH
from bench_workloads.guest import remote_service_limit_s
from bench_workloads.script import job_limit_s

AB = "name: a\n%sjob: {workload: ab, services: {webbench: {%s}}}\n"


@dataclass(frozen=True)
class Worker:
    """A worker as a place sees it."""

    number: int
    worker_id: str
    environment: str = "lab"


def treatment(at="b", more="", top=""):
    (one,) = parse_scenario(Source("s.yaml", AB % (top, f"placement: {at}{more}"))).treatments
    return one


def test_a_place_is_read_and_survives_the_wire():
    """It travels with the treatment; a place of a service that there is not is refused."""
    one = treatment()
    assert one.placement == {"webbench": "b"}
    assert msgspec.convert(one.to_dict(), Treatment, dec_hook=read_job) == one
    old = one.to_dict()
    del old["placement"]
    assert msgspec.convert(old, Treatment, dec_hook=read_job).placement == {}
    with pytest.raises(msgspec.ValidationError, match="unknown services in 'placement'"):
        msgspec.convert({**one.to_dict(), "placement": {"mariadb": "b"}}, Treatment, dec_hook=read_job)
    with pytest.raises(ValueError, match="unknown services"):
        replace(one, placement={"mariadb": "b"})


def test_places_are_varied_in_a_matrix():
    """One treatment for each, labelled with where."""
    text = "name: a\nmatrix: {services.webbench.placement: [bare-metal, hypervisor]}\njob: {workload: ab}\n"
    found = parse_scenario(Source("s.yaml", text)).treatments
    assert [one.labels["placement"] for one in found] == ["bare-metal", "hypervisor"]
    assert [one.placement["webbench"] for one in found] == ["bare-metal", "hypervisor"]


def test_a_place_is_one_word():
    """As workers and environments are called."""
    with pytest.raises(ScenarioError, match="an environment or a worker id"):
        treatment(at="'not a name'")


def test_a_client_keeps_its_own_network_where_the_server_is_elsewhere():
    """Only a server on the same host's network drags the client along."""
    assert treatment(more=", network: host").container.network is None


def test_no_socket_leads_to_another_host():
    """Said before anything runs."""
    text = (
        "name: a\njob: {workload: sysbench-oltp, params: {connection: socket}, services: {mariadb: {placement: b}}}\n"
    )
    with pytest.raises(
        ScenarioError, match="runs on another host, 'b': a Unix socket cannot reach it; use a TCP connection"
    ):
        parse_scenario(Source("s.yaml", text))


@pytest.mark.parametrize(("place", "lent"), [("b", True), ("lab", True), ("a", False)])
def test_who_lends_is_named_by_id_or_environment(place, lent):
    """Nobody else does."""
    assert bool(services_hosted_by(treatment(at=place), "b", "lab")) is lent


def test_who_lends_takes_no_jobs_unless_nobody_else_is_there():
    """The server's host is not its own client while there is another."""
    a, b = Worker(0, "a"), Worker(1, "b")
    assert job_workers(treatment(), [a, b]) == [a]
    assert job_workers(treatment(), [b]) == [b]
    assert job_workers(treatment(at="lab"), [a, b]) == [a, b]


def test_a_client_always_has_the_same_lender_and_another_than_itself():
    """Of several in an environment; itself only where it is alone."""
    workers = [Worker(number, name) for number, name in enumerate("abc")]
    for client in workers:
        found = {choose_host("lab", client, order) for order in (workers, workers[::-1])}
        assert len(found) == 1
        assert found.isdisjoint({client, None})
    assert choose_host("lab", workers[0], workers[:1]) == workers[0]
    assert choose_host("nowhere", workers[0], workers) is None


def test_a_place_where_nobody_is_is_said_with_the_nearest_name():
    """The run does not begin, and says why."""
    (reason,) = unplaced_services([treatment(at="blade-2")], [Worker(0, "blade-1"), Worker(1, "blade-3", "control")])
    assert reason.startswith("no worker 'blade-2', by id or environment, for the service webbench (did you mean")


def test_a_run_begins_when_there_is_a_worker_at_each_place_and_gives_that_one_no_jobs():
    """As for environments; the second worker completes it, and the first gets the job."""
    one = treatment()
    coordinator = Coordinator([one], [Trial(0, 0, 0, warmup=False)], Policy(expected=1), job_limit_s=lambda _: 100.0)
    first = coordinator.handle(ev.Hello(b"1", "a", "lab", 4), 0.0)
    assert not [action for action in first if isinstance(action, act.AssignJobs)]
    second = coordinator.handle(ev.Hello(b"2", "b", "lab", 4), 1.0)
    assert [action.number for action in second if isinstance(action, act.AssignJobs)] == [0]


def test_what_each_host_needs_is_its_own_part():
    """The client's image on one, the server's on the other."""
    one = treatment(top="environments: [here]\n")
    assert [need.image for need in requirements_for_worker([one], "here", "a")] == ["weighbridge/ab"]
    assert [need.image for need in requirements_for_worker([one], "there", "b")] == ["weighbridge/webbench"]
    assert requirements_for_worker([one], "there", "c") == []


DOCKER = {"name": "docker", "usable": True, "settings": ["image"], "inapplicable": [], "runs_services": False}


@pytest.mark.parametrize(
    ("worker_id", "environment", "reasons"),
    [("a", "here", 0), ("b", "there", 1), ("c", "there", 0)],
)
def test_who_lends_is_held_against_what_it_lends(worker_id, environment, reasons):
    """An engine that cannot say where a container is reached runs clients, and no servers."""
    one = treatment(top="environments: [here]\n")
    info = {"engines": {"docker": DOCKER}}
    found = check_compatibility([one], environment=environment, slots=1, info=info, noop=False, worker_id=worker_id)
    assert len(found.reasons) == reasons
    assert all("runs no services (webbench)" in reason for reason in found.reasons)


def test_a_job_may_take_as_long_as_its_service_elsewhere_may():
    """Nobody takes a job away while it waits for another host within that one's own deadline."""
    near = replace(treatment(), placement={})
    assert remote_service_limit_s(treatment(), WEBBENCH) > 2 * near.timeout_s + WEBBENCH.ready_s
    assert job_limit_s(treatment()) - job_limit_s(near) > 0


def test_settings_of_a_service_go_with_it():
    """Its limits hold wherever it runs."""
    assert treatment(more=", memory: 1GiB").services["webbench"] == ContainerSettings(
        image="weighbridge/webbench", memory_bytes=2**30
    )
