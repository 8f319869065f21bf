"""Engines as third parties register them, good and broken."""

import threading
from importlib.metadata import EntryPoint

import pytest

from bench_common import directories
from bench_common.engine_traits import ENGINES_GROUP, baseline_engine, default_engine, engine_traits
from bench_common.errors import EngineUnavailable, UsageError
from bench_worker import leases
from bench_worker.engines import registry
from bench_worker.engines.base import Engine, EngineOptions, EngineStatus
from bench_worker.engines.native.engine import NativeEngine
from bench_worker.engines.noop import NoopEngine
from bench_worker.engines.registry import BrokenEngine, load_entries, open_engine, probe_all

OPTIONS = EngineOptions("run", "worker", 1)


class Unfinished(Engine):
    """Lacks every verb."""

    name = "unfinished"


class Hanging(NoopEngine):
    """Never answers its probe."""

    name = "hanging"
    over = threading.Event()

    @classmethod
    def probe(cls):
        cls.over.wait()
        return EngineStatus(cls.name, usable=True)


class Raising(NoopEngine):
    """Breaks in its probe."""

    name = "raising"

    @classmethod
    def probe(cls):
        raise RuntimeError("oh dear")


class Imageless(NoopEngine):
    """Ignores images, and registers no traits that say so."""

    name = "imageless"
    inapplicable = frozenset({"image"})


NOT_AN_ENGINE = 7


def point(name, value):
    return EntryPoint(name, value, ENGINES_GROUP)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("nowhere_at_all:Engine", "ModuleNotFoundError"),
        (f"{__name__}:Missing", "AttributeError"),
        (f"{__name__}:NOT_AN_ENGINE", "not a subclass of"),
        (f"{__name__}:Unfinished", "does not define close, create, discard"),
        (f"{__name__}:Hanging", "has the name 'hanging'"),
    ],
)
def test_a_broken_entry_point_is_an_unusable_engine(value, reason):
    """Whatever is wrong with a third party's package, the others go on and the reason is said."""
    found = load_entries([point("theirs", value), point("noop", "bench_worker.engines.noop:NoopEngine")])
    assert found["noop"] is NoopEngine
    assert isinstance(found["theirs"], BrokenEngine)
    broken, _ = sorted(probe_all(found), key=lambda status: status.usable)
    assert not broken.usable
    assert reason in broken.reason


def test_a_probe_that_hangs_or_breaks_leaves_the_others_alone(monkeypatch, caplog):
    """One engine's trouble is its own: it is unusable with the reason, after the bound at most, and named."""
    monkeypatch.setattr(registry, "PROBE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(registry, "SAID_AFTER_S", 0.03)
    try:
        statuses = {s.name: s for s in probe_all({"hanging": Hanging, "raising": Raising, "noop": NoopEngine})}
    finally:
        Hanging.over.set()
    assert statuses["noop"].usable
    assert "did not answer" in statuses["hanging"].reason
    assert "waiting for an answer of hanging" in caplog.text
    assert "RuntimeError: oh dear" in statuses["raising"].reason


def test_the_projects_own_engines_are_registered():
    """Docker and native are found through the entry points of the package itself."""
    found = registry.engine_classes()
    assert found["native"] is NativeEngine
    assert not isinstance(found["docker"], BrokenEngine)


def test_the_master_knows_the_nature_of_each_engine():
    """The registered traits are those of the classes; one engine is the default, one the baseline."""
    for name, engine in registry.engine_classes().items():
        assert engine_traits(name).inapplicable == engine.inapplicable
    assert (default_engine(), baseline_engine()) == ("docker", "native")
    assert not engine_traits("native").has_images
    assert engine_traits("docker").has_images


def test_an_engine_with_unregistered_traits_is_broken():
    """The master would refuse its scenarios: the reason names what to register."""
    found = load_entries([point("imageless", f"{__name__}:Imageless")])
    assert "weighbridge.engine_traits" in found["imageless"].reason


def test_an_unknown_engine_is_refused_with_the_nearest_spelling():
    """A typing error is a usage error."""
    with pytest.raises(UsageError, match="did you mean 'native'"):
        open_engine("natvie", OPTIONS)


@pytest.fixture
def registered(monkeypatch, tmp_path):
    """Make engines the registered ones, and notes of what is used go to a folder of the test."""
    monkeypatch.setattr(directories, "STATE", (tmp_path, tmp_path))

    def register(**classes):
        monkeypatch.setattr(registry, "engine_names", lambda: sorted(classes))
        monkeypatch.setattr(registry, "engine_classes", lambda only: {name: classes[name] for name in only})

    return register


def test_a_broken_engine_cannot_be_opened(registered):
    """The reason why it could not be loaded is the error."""
    registered(theirs=BrokenEngine("theirs", "no such module"))
    with pytest.raises(EngineUnavailable, match="no such module"):
        open_engine("theirs", OPTIONS)


def test_an_opened_engine_works_for_its_run(registered):
    """The options are the engine's own from then on, and clean-up knows that the run has used it."""
    registered(noop=NoopEngine)
    assert open_engine("noop", OPTIONS).options is OPTIONS
    assert [(use.run_id, use.engine) for use in leases.recorded_uses()] == [(OPTIONS.run_id, "noop")]


def test_an_engine_that_is_only_asked_something_is_not_noted_as_used(registered):
    """Without a run nothing is made that could be left behind."""
    registered(noop=NoopEngine)
    open_engine("noop", EngineOptions("", "w", 1))
    assert leases.recorded_uses() == []


def test_a_use_is_noted_even_where_the_engine_does_not_open(registered):
    """It may have been there a moment ago, and what it holds of the run then is looked for again."""

    class Away(NoopEngine):
        def open(self):
            assert leases.recorded_uses(), "noted too late"
            raise EngineUnavailable("nobody answers")

    registered(away=Away)
    with pytest.raises(EngineUnavailable):
        open_engine("away", OPTIONS)
    assert [use.engine for use in leases.recorded_uses()] == ["away"]


def test_only_the_engines_that_are_asked_for_are_loaded():
    """Loading one is a good part of a worker's start."""
    assert set(registry.engine_classes({"native", "nonsense"})) == {"native"}
    assert {"docker", "native"} <= set(registry.engine_names())


@pytest.mark.parametrize(("address", "runs"), [(False, False), (True, True)])
def test_an_engine_runs_services_if_it_says_where_a_container_is(address, runs):
    """The engine itself need not tell so."""
    members = {"address": lambda *_, **__: "10.0.0.1"} if address else {}
    engine = type("Own", (NoopEngine,), members)
    (status,) = probe_all({"own": engine})
    assert (status.usable, status.runs_services) == (True, runs)
