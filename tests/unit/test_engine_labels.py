"""Engines under labels: what a label may be, and what is known of the engine that it stands for."""

import pytest

from bench_common import directories
from bench_common.argument_types import InvalidValue
from bench_common.engine_traits import (
    EngineLabel,
    default_engine,
    engine_kind,
    engine_names,
    engine_traits,
    parse_engine_label,
    use_engine_labels,
)
from bench_common.errors import UsageError
from bench_master.run.preflight import check_compatibility
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_master.verdicts.confounds import program_differences
from bench_worker import leases
from bench_worker.engines.registry import BrokenEngine, engine_classes
from bench_worker.program_digest import program_details

NEW = EngineLabel("new", "crun", "/opt/crun/bin/crun")
SCENARIO = "name: a\nengines: [crun, new]\njob: {operations: [run, remove], container: {image: i}}\n"


@pytest.fixture(autouse=True)
def no_labels():
    """Whatever a test lets be a label is none after it."""
    yield
    use_engine_labels(())


@pytest.mark.parametrize(
    "text",
    [
        "new=crun:/opt/crun/bin/crun",
        "rootless=docker:unix:///run/user/1000/docker.sock",
        "far=docker:tcp://h:2375",
        "p5=podman:/opt/podman",
        "p5=podman:unix:///run/p.sock",
        "of-the-worker=containerd",
    ],
)
def test_a_label_has_an_engine_and_a_place(text):
    """It is read as it is written; without a place it is for workers that have one."""
    assert str(parse_engine_label(text)) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("crun", "expected LABEL=ENGINE:PROGRAM or LABEL=ENGINE:ADDRESS, such as"),
        ("a b=crun:/x", "expected LABEL=ENGINE"),
        ("runc=crun:/x", "runc is an engine itself; choose another label"),
        ("new=crn:/x", r"unknown engine 'crn' \(did you mean 'crun'\?\); one of: containerd, cri, crun"),
        ("new=native:/x", "engine native has neither a program nor a socket"),
        ("new=crun:crun", "expected the absolute path of a program after 'crun:'"),
        ("new=docker:/x.sock", "expected unix:///PATH or tcp://HOST:PORT after 'docker:'"),
        ("new=podman:x", "expected the absolute path of a program or unix:///PATH or tcp://HOST:PORT"),
    ],
)
def test_what_is_no_label_is_refused_with_what_was_expected(text, why):
    """An unknown engine has the nearest right spelling."""
    with pytest.raises(InvalidValue, match=why):
        parse_engine_label(text)


def test_a_label_is_a_name_with_the_traits_of_its_engine():
    """But for its colour and the role of the default, which one engine has."""
    use_engine_labels([NEW, EngineLabel("second", "docker", "unix:///s")])
    assert {"new", "second", "crun"} <= {*engine_names()}
    assert engine_kind("new") == engine_kind("crun") == "crun"
    assert engine_traits("new").inapplicable == engine_traits("crun").inapplicable
    assert (engine_traits("new").hue, default_engine()) == ("", "docker")
    with pytest.raises(UsageError, match="the label 'new' is given twice, first as new=crun:/opt/crun/bin/crun"):
        use_engine_labels([NEW, EngineLabel("new", "runc", "/r")])


def test_a_scenario_names_labels_and_an_unknown_one_is_an_error():
    """The nearest spelling may be that of a label."""
    with pytest.raises(UsageError, match=r"unknown engine 'new'"):
        parse_scenario(Source("s.yaml", SCENARIO))
    use_engine_labels([NEW])
    scenario = parse_scenario(Source("s.yaml", SCENARIO))
    assert [one.engine for one in scenario.treatments] == ["crun", "new"]
    with pytest.raises(UsageError, match=r"unknown engine 'nwe' \(did you mean 'new'\?\)"):
        parse_scenario(Source("s.yaml", SCENARIO.replace("new", "nwe")))


def test_a_worker_without_the_label_or_with_another_engine_there_is_refused():
    """The reason says how to start it."""
    use_engine_labels([EngineLabel("new", "crun")])
    _, treatment = parse_scenario(Source("s.yaml", SCENARIO)).treatments

    def reasons(engines):
        info = {"engines": engines}
        return check_compatibility([treatment], environment="e", slots=9, info=info, noop=False).reasons

    assert reasons({}) == ("it has no engine 'new': start it with --engine new=crun:PLACE",)
    runc = {"name": "new", "kind": "runc", "usable": True}
    assert reasons({"new": runc}) == ("its engine 'new' is a runc, and a crun by --engine here",)


def test_the_class_of_a_label_is_its_engines_at_its_place():
    """Two addresses are two stores; a label without a place is broken on a worker."""
    use_engine_labels([NEW, EngineLabel("cli", "docker-cli", "unix:///s"), EngineLabel("lost", "crun")])
    classes = engine_classes()
    new, crun = classes["new"], classes["crun"]
    assert issubclass(new, crun)
    assert (new.name, new.kind, new.place) == ("new", "crun", "/opt/crun/bin/crun")
    assert classes["cli"].store not in ("", classes["docker-cli"].store)
    assert isinstance(classes["lost"], BrokenEngine)
    assert set(engine_classes({"new"})) == {"new"}


def test_a_record_of_use_keeps_where_a_label_was(monkeypatch, tmp_path):
    """Clean-up finds it without the option."""
    monkeypatch.setattr(directories, "STATE", (tmp_path, tmp_path))
    leases.record_engine_use("r1", "new", NEW)
    leases.record_engine_use("r1", "crun")
    assert {use.engine: use.label for use in leases.recorded_uses()} == {"new": NEW, "crun": None}


def test_a_strangers_record_names_no_program(monkeypatch, tmp_path):
    """Clean-up by root would run it as root."""
    monkeypatch.setattr(directories, "STATE", (tmp_path, tmp_path))
    leases.record_engine_use("r1", "new", NEW)
    [use] = leases.recorded_uses()
    monkeypatch.setattr("os.geteuid", lambda: use.owner + 1 if use.owner else 1)
    monkeypatch.setattr(leases, "state_directories", lambda _name: [(use.path.parent, use.owner or 1)])
    assert [one.label for one in leases.recorded_uses()] in ([], [None])


def test_a_program_is_known_by_its_digest(tmp_path):
    """Of the file as it is now; what cannot be read has none."""
    program = tmp_path / "crun"
    program.write_bytes(b"abc")
    details = program_details(str(program))
    assert details["program"] == str(program)
    assert details["sha256"].startswith("ba7816bf8f01cfea")
    program.write_bytes(b"abcd")
    assert program_details(str(program))["sha256"] != details["sha256"]
    assert program_details(str(tmp_path / "nosuch")) == program_details("") == {}


def test_another_program_of_the_same_version_refuses_a_comparison_of_runs():
    """A version does not tell two builds apart."""
    one, other = ({"crun": {"program": "/usr/bin/crun", "sha256": digest * 16}} for digest in ("abcd", "ef01"))
    [found] = program_differences(one, other)
    assert (found.name, found.a, found.effect) == ("program of crun", "abcdabcdabcd", "refusal")
    assert (
        program_differences(one, one) == program_differences(one, {}) == program_differences(one, other, ["x"]) == []
    )
