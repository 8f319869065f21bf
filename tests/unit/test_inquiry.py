"""What workers are asked before they are admitted, and who waits for an answer."""

from dataclasses import replace

import pytest

from bench_common.errors import EngineUnavailable, ProtocolError
from bench_common.messages import Message
from bench_common.needs import Need, needs_of
from bench_common.spec import ContainerSettings, Lifecycle, Treatment
from bench_master.run.inquiry import ALIVE_S, ANSWER_S, Inquiry
from bench_worker.stock import lacking


def treatment(index, engine="docker", environment=None, **settings):
    return Treatment(index, {}, environment, engine, Lifecycle(()), ContainerSettings(**settings))


def hello(environment="vm"):
    return Message("hello", 0, {"environment": environment, "worker_id": "w1"})


class Scene:
    """An inquiry with its questions kept and a clock that is set by hand."""

    def __init__(self, *treatments):
        self.asked = []
        self.now = 0.0
        self.inquiry = Inquiry(treatments, lambda peer, needs: self.asked.append((peer, needs)), lambda: self.now)

    def hello(self, peer=b"p", identity=None, at_ns=7):
        return self.inquiry.admits(peer, identity, hello(), at_ns)


def test_each_need_of_an_environment_is_asked_for_once():
    """Treatments that differ in limits only need the same; those of other environments, and empty ones, nothing."""
    plan = [
        treatment(0, image="a", cpus=1.0),
        treatment(1, image="a", cpus=2.0),
        treatment(2, image="a", network="n"),
        treatment(3, environment="metal", image="b"),
        treatment(4, engine="native"),
    ]
    assert needs_of(plan, "vm") == [Need("docker", "a"), Need("docker", "a", "n")]
    assert needs_of(plan, "metal") == [Need("docker", "a"), Need("docker", "a", "n"), Need("docker", "b")]


def test_services_have_needs_and_optional_treatments_have_none():
    """A server's image and network have to be there; what is optional may be left out, so nobody asks for it."""
    served = replace(treatment(0, image="a"), services={"db": ContainerSettings(image="b", network="n")})
    spare = replace(treatment(1, image="c"), optional=True)
    assert needs_of([served, spare], "vm") == [Need("docker", "a"), Need("docker", "b", "n")]


def test_a_need_comes_back_as_it_went():
    """And names the container's settings that it came from."""
    need = Need("docker", "a", None, "syslog")
    assert Need.from_wire(need.to_wire()) == need
    assert need.settings == ContainerSettings(image="a", log_driver="syslog")


@pytest.mark.parametrize(
    "wire", [None, {}, {"engine": "x"}, {**Need("x").to_wire(), "engine": None}, {**Need("x").to_wire(), "image": 3}]
)
def test_what_is_no_need_is_refused(wire):
    """Nothing of another shape or type gets to an engine."""
    with pytest.raises(ProtocolError):
        Need.from_wire(wire)


def test_a_worker_is_asked_once_and_its_last_hello_waits():
    """However often it repeats its hello; the answer brings the last one back, with the stamp of its arrival."""
    scene = Scene(treatment(0, image="a"))
    assert not scene.hello(at_ns=7)
    assert not scene.hello(at_ns=8)
    assert scene.asked == [(b"p", [Need("docker", "a").to_wire()])]
    waited, at_ns = scene.inquiry.answered(b"p", None)
    assert (waited["worker_id"], at_ns) == ("w1", 8)
    assert scene.hello()
    assert not scene.hello(peer=b"q")


def test_answers_nobody_asked_for_count_for_nothing():
    """Neither a second one, nor a stranger's, nor one over a connection with another key."""
    scene = Scene(treatment(0, image="a"))
    assert scene.inquiry.answered(b"p", None) is None
    scene.hello(identity="w1")
    assert scene.inquiry.answered(b"p", "w2") is None
    assert scene.inquiry.answered(b"p", "w1") is not None
    assert scene.inquiry.answered(b"p", "w1") is None


def test_without_needs_nobody_is_asked():
    """Plain processes need nothing, and a no-op run has no treatments here."""
    assert Scene().hello()
    assert Scene(treatment(0, engine="native")).hello()


def test_an_answer_is_awaited_while_the_worker_lives_and_not_for_ever():
    """A worker that has stopped repeating its hello is not waited for; nor is one that takes too long."""
    scene = Scene(treatment(0, image="a"))
    assert not scene.inquiry.open
    scene.hello()
    assert scene.inquiry.open
    scene.now = ALIVE_S
    assert not scene.inquiry.open
    scene.hello()
    assert scene.inquiry.open
    scene.now = ANSWER_S
    scene.hello()
    assert not scene.inquiry.open


class Stocked:
    """An engine that has some images."""

    def missing(self, settings):
        return [] if settings.image == "here" else [f"no {settings.image}"]


def test_a_worker_says_what_is_lacking_under_which_engine():
    """One reason each; the engines that were asked are handed over, and an engine that is open is not opened anew."""
    needs = [Need("docker", "here"), Need("docker", "a"), Need("podman", "a")]
    docker = Stocked()
    opened = {"docker": docker}
    reasons, unusable = lacking(needs, "w1", lambda _name, _options: Stocked(), opened)
    assert reasons == ["engine docker: no a", "engine podman: no a"]
    assert not unusable
    assert opened.keys() == {"docker", "podman"}
    assert opened["docker"] is docker


def test_an_engine_that_cannot_be_asked_is_told_from_what_is_missing():
    """Whatever it does, the master gets its answer."""

    def gone(_name, _options):
        raise EngineUnavailable("engine 'docker' does not answer")

    def broken(_name, _options):
        raise ValueError("odd")

    assert lacking([Need("docker", "a")], "w1", gone, {}) == (["engine 'docker' does not answer"], True)
    assert lacking([Need("docker", "a")], "w1", broken, {}) == (["engine docker: ValueError: odd"], True)
