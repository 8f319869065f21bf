"""The published schema and the loader agree: on a corpus of documents, and on whatever hypothesis makes of them."""

import copy
import json

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bench_common.errors import ScenarioError
from bench_master.scenario import builtin_scenarios, scenario_schema
from bench_master.scenario.diagnostics import Diagnostics
from bench_master.scenario.format import scenario_format
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.resolve import Resolver
from bench_master.scenario.yaml_tree import Source, TreeComposer

SCHEMA = scenario_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
FORMAT = scenario_format()


def loader_complaints(document):
    """Return what the loader says against a document, apart from what no schema can see."""
    composer = TreeComposer(json.dumps(document), "s.yaml")
    root = composer.compose()
    assert not composer.problems
    findings = Diagnostics()
    read = FORMAT.scenario.read(root, findings)
    if isinstance(read, dict):
        Resolver(FORMAT, findings).resolve(read, root.place)
    return [str(problem) for problem, deep in findings.deep.items() if not deep]


def schema_complaints(document):
    """Return what the schema says against a document."""
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(document)]


def assert_agreement(document):
    """Fail unless both accept or both refuse a document."""
    loader, schema = loader_complaints(document), schema_complaints(document)
    assert bool(loader) is bool(schema), f"loader: {loader}\nschema: {schema}\n{json.dumps(document)}"


def lifecycle(**more):
    """Return a small document with a life-cycle job."""
    return {"name": "a", "job": {"operations": ["run", "remove"], "container": {"image": "i"}}, **more}


def guest(params, **more):
    """Return a small document with a guest job."""
    return {"name": "a", "job": {"workload": "sysbench-cpu", "params": params}, **more}


def on_objects(objects, **more):
    """Return a small document with a job on objects."""
    return {"name": "a", "engines": ["noop"], "job": {"objects": objects}, **more}


TINY = {"sizes": "4KiB", "mix": {"create": 1, "read": 9}}

GOOD = [
    on_objects(TINY),
    on_objects({**TINY, "sizes": 4096, "population": 5, "delete_after": "1h", "verify": "full", "pick": "random"}),
    on_objects({**TINY, "sizes": {"min": 1, "max": "1MiB", "distribution": "log"}, "range": 1}),
    on_objects({**TINY, "sizes": {"histogram": {"4KiB": 70, "1048576": 30}}, "block": "1MiB", "list_limit": 5}),
    on_objects({"mix": {"list": 1}, "classes": {"a": {"sizes": 0}, "b": {"sizes": "1KiB", "weight": 0.5}}}),
    on_objects({**TINY, "store": {"profile": "lab", "endpoints": ["http://[::1]:80/v1/AUTH_a", "https://b"]}}),
    on_objects(
        {**TINY, "containers": {"count": 9, "base": "mine", "policy": "gold"}, "retries": 3, "retry_pause": 1}
    ),
    on_objects({**TINY, "multipart": {"above": "16MiB", "part": "8MiB"}, "pick": "zipf", "zipf_exponent": 0.9}),
    on_objects(TINY, matrix={"objects.sizes": ["1KiB", 5], "objects.mix": [{"create": 1}, {"head": 1}]}),
    on_objects(
        {"mix": {"create": 1}, "classes": {"a": {"sizes": 5}}}, matrix={"objects.classes.a.population": [1, 2]}
    ),
    lifecycle(),
    lifecycle(description="x", seed=5, order="blocked", repeats=6, warmup=2, concurrency=3, timeout="90s"),
    lifecycle(environments=["bare-metal", "vm 1".replace(" ", "-")], engines=["docker", "native"]),
    lifecycle(name=5, description=True),
    lifecycle(iterations=5.0),
    lifecycle(run_seconds="1h30m"),
    lifecycle(run_seconds=0.5),
    lifecycle(container={"memory": "512MiB", "cpus": 1.5, "cpuset": "0-1", "network": "none", "init": True}),
    lifecycle(container={"cap_add": ["IPC_LOCK"], "cap_drop": ["ALL"]}),
    lifecycle(container={"ulimits": {"nofile": -1, "core": "5:6", "nproc": 7}, "pids": 5, "read_only": True}),
    lifecycle(container={"device_read_bps": {"/dev/sda": "1MiB"}, "security_options": ["no-new-privileges"]}),
    lifecycle(container={"memory": 2**30, "command": ["a", 5, True], "env": {"A": "", "B": None, "C": 1}}),
    lifecycle(container={"storage": [{"volume": None, "target": "/x"}, {"tmpfs": "1MiB", "target": "/y"}]}),
    lifecycle(container={"storage": [{"host": "/x", "target": "/x", "read_only": True}]}),
    lifecycle(matrix={"concurrency": [1, 2], "container.memory": ["1GiB"], "container.env.A": ["x", 1]}),
    lifecycle(matrix={"concurrency": [1, 2], "exclude": [{"concurrency": 1}], "include": [{"engine": "native"}]}),
    lifecycle(matrix={"operations": [["run", "remove"], ["create", {"exec": ["x"]}]]}),
    lifecycle(matrix={}),
    lifecycle(container={"cpuset": 0, "storage": [{"volume": 5, "target": "/x"}], "log_driver": False}),
    lifecycle(thresholds=["jobs.failed == 0"]),
    guest({}),
    guest({"time": "2s", "threads": 4, "percentile": "99"}),
    guest({"time": 2, "percentile": 99}),
    guest({"time": 2}, matrix={"params.threads": [1, 2]}),
    {"name": "a", "jobs": {"x": {"operations": [{"sleep": "1s"}]}, "y": {"workload": "sysbench-cpu"}}},
    {"name": "a", "job": {"operations": ["create", "start", {"stop": None}, {"kill": "SIGTERM"}]}},
    {"name": "a", "job": {"operations": ["run", {"exec": {"command": "a b"}}, {"stop": {"grace": 0}}, {"sleep": 1}]}},
    {"name": "a", "job": {"operations": ["run", {"stop": {}}, {"kill": {"signal": "SIGHUP"}}, "commit"]}},
]
BAD = [
    on_objects(None),
    on_objects({**TINY, "size": "4KiB"}),
    on_objects({**TINY, "mix": {}}),
    on_objects({**TINY, "mix": {"raed": 1}}),
    on_objects({**TINY, "mix": {"read": -1}}),
    on_objects({**TINY, "sizes": {"min": 1}}),
    on_objects({**TINY, "sizes": {"histogram": {}}}),
    on_objects({**TINY, "sizes": {"histogram": {"4KiB": 1}, "min": 5}}),
    on_objects({**TINY, "sizes": {"histogram": {"large": 1}}}),
    on_objects({**TINY, "classes": {}}),
    on_objects({**TINY, "classes": {"a b": {}}}),
    on_objects({**TINY, "store": {"endpoints": ["http://me:secret@host/v1"]}}),
    on_objects({**TINY, "endpoints": ["http://host/v1"]}),
    on_objects({**TINY, "containers": {"count": 0}}),
    on_objects({**TINY, "zipf_exponent": 1}),
    on_objects({**TINY, "multipart": {"part": "8MiB"}}),
    on_objects({**TINY, "verify": "crc"}),
    on_objects(TINY, matrix={"objects.size": [1]}),
    on_objects(TINY, matrix={"objects.classes.a.b.population": [1]}),
    {"name": "a", "job": {"objects": TINY, "operations": ["run"]}},
    None,
    [],
    5,
    {},
    {"name": "a"},
    {"job": {"operations": ["run"]}},
    lifecycle(nmae="a"),
    lifecycle(name=""),
    lifecycle(name=["a"]),
    lifecycle(jobs={"x": {"workload": "sysbench-cpu"}}),
    {"name": "a", "jobs": {}},
    {"name": "a", "jobs": {"a b": {"workload": "sysbench-cpu"}}},
    {"name": "a", "job": {}},
    {"name": "a", "job": {"operations": ["run"], "workload": "sysbench-cpu"}},
    {"name": "a", "job": {"operations": ["run"], "params": {}}},
    {"name": "a", "job": {"operations": []}},
    {"name": "a", "job": {"operations": ["strat"]}},
    {"name": "a", "job": {"operations": ["exec"]}},
    {"name": "a", "job": {"operations": [{"exec": None}]}},
    {"name": "a", "job": {"operations": [{"exec": []}]}},
    {"name": "a", "job": {"operations": [{"exec": ["a"], "run": ["b"]}]}},
    {"name": "a", "job": {"operations": [{"exec": {"cmd": ["a"]}}]}},
    {"name": "a", "job": {"operations": [{"sleep": 0}]}},
    {"name": "a", "job": {"operations": [{"wait": 5}]}},
    {"name": "a", "job": {"operations": [{"kill": "SIGNOPE"}]}},
    {"name": "a", "job": {"workload": "sysbench-cup"}},
    guest({"threads": 0}),
    guest({"thread": 1}),
    guest({"time": "5 fortnights"}),
    guest({"threads": "4"}),
    guest({"time": [1]}),
    guest([]),
    lifecycle(iterations=1, run_seconds=5),
    lifecycle(iterations=1.5),
    lifecycle(iterations="5"),
    lifecycle(iterations=None),
    lifecycle(repeats=0),
    lifecycle(seed=-1),
    lifecycle(order="random"),
    lifecycle(engines=[]),
    lifecycle(engines="docker"),
    lifecycle(engines=["dokcer"]),
    lifecycle(environments=["a b"]),
    lifecycle(timeout="0.5 s"),
    lifecycle(timeout=0),
    lifecycle(sampling_interval=0.05),
    lifecycle(thresholds="jobs.failed == 0"),
    lifecycle(container=None),
    lifecycle(container={"memory": "1mb"}),
    lifecycle(container={"memory": 5}),
    lifecycle(container={"memory": "1.5"}),
    lifecycle(container={"init": "yes"}),
    lifecycle(container={"cpuset": "a"}),
    lifecycle(container={"ulimits": {"nofiles": 5}}),
    lifecycle(container={"ulimits": {"nofile": -2}}),
    lifecycle(container={"security_options": ["privileged"]}),
    lifecycle(container={"cap_add": ["ALL"]}),
    lifecycle(container={"command": ""}),
    lifecycle(container={"env": {"A=B": "x"}}),
    lifecycle(container={"env": {"A": []}}),
    lifecycle(container={"storage": [{"volume": "v"}]}),
    lifecycle(container={"storage": [{"volume": "va", "host": "/x", "target": "/x"}]}),
    lifecycle(container={"storage": [{"host": "x", "target": "/x"}]}),
    lifecycle(matrix={"memory": ["1GiB"]}),
    lifecycle(matrix={"concurrency": 1}),
    lifecycle(matrix={"concurrency": []}),
    lifecycle(matrix={"concurrency": [0]}),
    lifecycle(matrix={"concurrency": [1], "include": [{"engines": ["x"]}]}),
    lifecycle(matrix={"concurrency": [1], "exclude": [{}]}),
    lifecycle(matrix={"concurrency": [1], "exclude": {}}),
    lifecycle(matrix={"container.env.": ["x"]}),
    lifecycle(matrix=[]),
]


def test_the_schema_is_a_schema():
    """What is published is valid JSON Schema, draft 2020-12."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


@pytest.mark.parametrize("document", GOOD, ids=lambda document: json.dumps(document)[:60])
def test_both_accept_what_is_good(document):
    """Each good document passes the schema and the loader's shapes."""
    assert (schema_complaints(document), loader_complaints(document)) == ([], [])


@pytest.mark.parametrize("document", BAD, ids=lambda document: json.dumps(document)[:60])
def test_both_refuse_what_is_bad(document):
    """Each bad document is refused by the schema and by the loader."""
    assert schema_complaints(document)
    assert loader_complaints(document)


NEITHER = [
    {"test": "cpu", "params": {"num-threads": 4, "max-time": 60}},
    {"workload": "sysbench-cpu", "params": {"num-threads": 4}},
    {"workload": "sysbench"},
    {"test": "cpu", "operations": ["run"]},
    {"test": "cpu", "params": {"num-threads": 0}},
    {"test": "cpu", "params": {"num-thread": 1}},
    {"test": "cpu", "params": {"memory-oper": "read"}},
    {"test": "fileio", "params": {"init-rng": "off"}},
    {"workload": "mbw", "params": {"num-threads": 2}},
    {"params": {"num-threads": 2}},
]


def understood(job):
    """Say whether the loader understands a job."""
    try:
        parse_scenario(Source("s.yaml", json.dumps({"name": "a", "job": job})))
    except ScenarioError:
        return False
    return True


@pytest.mark.parametrize("job", NEITHER, ids=json.dumps)
def test_both_refuse_what_only_a_tool_calls_so(job):
    """Options have one name here; the loader's message names it."""
    assert not understood(job)
    assert schema_complaints({"name": "a", "job": job})


@pytest.mark.parametrize("name", sorted(builtin_scenarios()))
def test_ready_made_scenarios_fit_as_an_editor_reads_them(name):
    """An editor that checks a shipped file against the schema has nothing to complain about."""
    assert schema_complaints(yaml.safe_load(builtin_scenarios()[name].read_text())) == []


WORDS = st.sampled_from([
    "a", "x-1", "1GiB", "512mb", "5s", "12:30", "1h30m", "true", "no", "0", "7", "docker", "native", "none", "/x",
    "run", "remove", "exec", "sleep", "SIGTERM", "", " ", "a b", "A=B", "blocked", "99", "sysbench-cpu",
])  # fmt: skip
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.sampled_from([10**6, 2**31, 2**60, 0.5, 1.5, 90.25, -0.5]),
    WORDS,
)


def places(node, path=()):
    """Yield the path of every node below the top of a document."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


KEYS = st.sampled_from(sorted({key for one in GOOD for path in places(one) for key in path if isinstance(key, str)}))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def mutated_documents(draw):
    """Return a good document with one or two places replaced, deleted or added to."""
    document = copy.deepcopy(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 2))):
        found = list(places(document))
        if not found:
            break
        path = draw(st.sampled_from(found))
        owner = document
        for key in path[:-1]:
            owner = owner[key]
        action = draw(st.sampled_from(["replace", "delete", "add"]))
        if action == "replace":
            owner[path[-1]] = draw(VALUES)
        elif action == "delete":
            del owner[path[-1]]
        elif isinstance(owner, dict):
            owner[draw(KEYS)] = draw(VALUES)
        else:
            owner.append(draw(VALUES))
    return document


@settings(max_examples=150, deadline=None)
@given(mutated_documents())
def test_both_agree_on_mutated_documents(document):
    """Whatever happens to a good document, loader and schema accept it together or refuse it together."""
    assert_agreement(document)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_both_agree_on_any_document(document):
    """On documents made of nothing but the format's own words, loader and schema agree."""
    assert_agreement(document)
