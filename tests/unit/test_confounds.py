"""What differs between two sides besides the treatment, and what a run's design allows."""

import msgspec
import pytest
from builders import stored
from msgspec.structs import replace

from bench_common.stats.block_types import Header, StoredHost
from bench_common.treatment import (
    ContainerSettings,
    Guest,
    Lifecycle,
    MetricSource,
    Mount,
    OpenLoad,
    Operation,
    OwnCommand,
    OwnService,
    Treatment,
)
from bench_features.objects.common.job import Objects, SizeClass, Sizes
from bench_master.analysis.parameters import known_keys, parameter_differences, timeout_differences
from bench_master.verdicts import confounds
from bench_master.verdicts.confounds import grade_run, grade_sides
from bench_master.verdicts.reasons import Code, because

HOST = {
    "hostname": "one",
    "machine_id": "a1",
    "cpu_model": "Xeon",
    "memory": 8_000_000_000,
    "kernel": "6.1",
    "kernel_build": "#1",
    "swappiness": 60,
    "hypervisor": "none",
    "package_pyzmq": "26.0",
}


def treatment(engine="docker", labels=None, **settings):
    job = settings.pop("job", {"kind": "guest", "workload": "sysbench_cpu", "params": {"threads": 2}})
    return stored(
        {
            "labels": {"environment": "local", "engine": engine, **(labels or {})},
            "engine": engine,
            "environment": None,
            "job": job,
            "concurrency": 1,
            "iterations": 3,
            "container": {"image": "sysbench:1", "memory_bytes": None},
            **settings,
        }
    )


def names(differences):
    return [(one.name, one.effect) for one in differences]


def test_unlike_parameters_refuse():
    """Whatever makes one side do other work than the other: parameters, load, settings of the container."""
    other = treatment(
        "podman",
        job={"kind": "guest", "workload": "sysbench_cpu", "params": {"threads": 4}},
        concurrency=8,
        container={"image": "sysbench:2"},
        open_load={"rate_per_s": 100.0, "process": "poisson"},
    )
    found = parameter_differences(treatment(), other)
    assert {one.name for one in found} == {"params.threads", "concurrency", "container.image", "rate", "arrivals"}
    assert {one.effect for one in found} == {"refusal"}
    assert ("2", "4") in [(one.a, one.b) for one in found]
    assert not parameter_differences(treatment(), treatment("podman"))


def test_what_is_compared_is_no_confound():
    """A treatment that is named for its concurrency differs in it on purpose; two environments do not."""
    more = treatment(labels={"concurrency": 8}, concurrency=8)
    assert not parameter_differences(treatment(labels={"concurrency": 1}), more)
    there = treatment(concurrency=4)
    there.labels["environment"] = "hypervisor"
    assert names(parameter_differences(treatment(concurrency=100), there)) == [("concurrency", "refusal")]


def test_operations_and_units_are_parameters():
    """Another command in the same place is another measurement, and so is another unit."""
    jobs = [
        {"kind": "lifecycle", "operations": [{"kind": "run", "name": "run", "argv": [word], "timed": True}]}
        for word in ("true", "false")
    ]
    first, second = (treatment(job=job) for job in jobs)
    assert names(parameter_differences(first, second)) == [("operations", "refusal")]
    units = [treatment(metrics={"speed": {"unit": unit}}) for unit in ("MiB/s", "MB/s")]
    assert names(parameter_differences(*units)) == [("unit of speed", "refusal")]


def test_hosts():
    """Some properties refuse, others are mentioned; names, packages, and memory within two per cent are neither."""
    other = HOST | {
        "hostname": "two",
        "machine_id": "b2",
        "cpu_model": "EPYC",
        "memory": 8_100_000_000,
        "kernel_build": "#2",
        "hypervisor": "kvm",
        "package_pyzmq": "27.0",
    }
    expected = [("cpu_model", "refusal"), ("hypervisor", "refusal"), ("kernel_build", "warning")]
    assert names(confounds.host_differences(HOST, other)) == expected
    assert ("hypervisor", "refusal") not in names(confounds.host_differences(HOST, other, between_environments=True))
    assert confounds.host_differences(HOST, {"memory": 9_000_000_000})[0].name == "memory"
    assert not confounds.host_differences(HOST, {})


def test_engines_and_machines():
    """Versions differ where both sides have one; a machine is known by its digest alone."""
    found = confounds.engine_differences({"docker": "29.1", "podman": "5"}, {"docker": "28.0", "runc": "1"})
    assert [(one.name, one.a, one.b) for one in found] == [("engine docker", "29.1", "28.0")]
    assert not confounds.engine_differences({"docker": "1"}, {"docker": "2"}, engines=["podman"])
    assert [confounds.same_machine(HOST, {"machine_id": one}) for one in ("a1", "b2", None)] == [True, False, None]


@pytest.mark.parametrize(
    ("name", "mine", "theirs", "effect"),
    [
        ("kernel_hz", 250, 1000, "refusal"),
        ("rcu_expedited", 0, 1, "refusal"),
        ("rcu_normal", 0, 1, "refusal"),
        ("rcu_nocbs", "none", "2-3", "refusal"),
        ("cgroup", "v1", "v2", "refusal"),
        ("cpu_governor", "powersave", "performance", "refusal"),
        ("mitigations", "mds: Vulnerable", "not affected", "refusal"),
        ("kernel_options", "none", "threadirqs", "warning"),
        ("huge_pages", "always", "madvise", "warning"),
        ("swappiness", 60, 0, "warning"),
    ],
)
def test_how_a_kernel_is_set_up_is_no_detail(name, mine, theirs, effect):
    """What changes times of containers by more than a margin refuses; what may matter is mentioned."""
    found = confounds.host_differences({**HOST, name: mine}, {**HOST, name: theirs})
    assert names(found) == [(name, effect)]


def test_engines_differ_in_program_storage_and_images():
    """Each has a name of its own for --accept; an image that only one side has says nothing."""
    mine = {"docker": {"sha256": "a" * 64, "storage_driver": "overlay2", "image x": "1" * 64, "image y": "2" * 64}}
    theirs = {"docker": {"sha256": "b" * 64, "storage_driver": "vfs", "image x": "3" * 64, "program": "/else"}}
    found = confounds.program_differences(mine, theirs)
    assert [(one.name, one.a, one.b) for one in found] == [
        ("program of docker", "a" * 12, "b" * 12),
        ("storage driver of docker", "overlay2", "vfs"),
        ("image x of docker", "1" * 12, "3" * 12),
    ]
    assert not confounds.program_differences(mine, theirs, ["podman"])
    assert not confounds.program_differences(mine, mine)


def test_another_build_of_the_program_that_jobs_run_is_mentioned():
    """It refuses nothing, as two builds of one program are what people compare; path and digest are shown."""
    mine = {"native": {"program ./tool": "/old/tool", "sha256 ./tool": "a" * 64, "program x": "/x", "sha256 x": "1"}}
    theirs = {"native": {"program ./tool": "/new/tool", "sha256 ./tool": "b" * 64, "sha256 y": "2"}}
    [found] = confounds.program_differences(mine, theirs)
    assert (found.name, found.effect) == ("program ./tool of native", "warning")
    assert (found.a, found.b) == ("/old/tool (sha256 aaaaaaaaaaaa)", "/new/tool (sha256 bbbbbbbbbbbb)")
    moved = {"native": {"program ./tool": "/moved/tool", "sha256 ./tool": "a" * 64}}
    assert not confounds.program_differences(mine, moved), "the same file at another place is the same program"


def test_what_surrounds_processes_and_containers():
    """Each known difference is mentioned, but for variables that both are given, and what several images have."""
    plain = {"side user": "root", "side libc": "glibc 2.36", "side variable PATH": "/bin", "program x": "/bin/x"}
    inside = {"side user": "app", "side libc": "musl", "side variable PATH": "/opt", "side variable TZ": "UTC"}
    inside |= {"side directory": "/srv", "side open files": "9", "program x": "/opt/x", "sha256 x": "b" * 64}
    found = confounds.surrounding_differences({**plain, "sha256 x": "a" * 64}, inside, {"TZ"})
    assert [(one.name, one.a, one.b) for one in found] == [
        ("user", "root", "app"),
        ("libc", "glibc 2.36", "musl"),
        ("variable PATH", "/bin", "/opt"),
        ("directory", "a directory of its own", "/srv"),
        ("program x", "/bin/x (sha256 aaaaaaaaaaaa)", "/opt/x (sha256 bbbbbbbbbbbb)"),
    ]
    unset = confounds.surrounding_differences(plain, {**plain, "side variable LANG": "C"})
    assert [(one.name, one.a, one.b, one.effect) for one in unset] == [("variable LANG", "unset", "C", "warning")]
    assert not list(confounds.surrounding_differences(plain, {**plain, "side user": "root, app"}))
    assert not list(confounds.surrounding_differences(plain, {}))


def test_names_that_accept_takes():
    """Those of the lists, and those of the runs at hand."""
    keys = known_keys(
        [treatment()], [StoredHost(fingerprint=HOST, programs={"native": {"program ./tool": "/a/tool"}})]
    )
    assert {"cpu_governor", "params.threads", "container.image", "engine docker", "swappiness"} <= set(keys)
    assert {"program of docker", "storage driver of docker", "image sysbench:1 of docker"} <= set(keys)
    assert "program ./tool of native" in keys
    assert len(keys) == len(set(keys))


# -- designs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "known", "grade", "reason"),
    [
        (Header(order="interleaved"), {}, "A", None),
        (Header(order="as-written"), {}, "D", because(Code.NOT_INTERLEAVED, kind="as-written")),
        (
            Header(order="as-written"), {"knows_position_effect": True}, "B",
            because(Code.ORDER_NOT_DRAWN, order="as-written"),
        ),
        (Header(order="interleaved"), {"split_rounds": 2}, "B", because(Code.SPLIT_ROUNDS, rounds=2)),
        (Header(order="blocked"), {}, "D", because(Code.NOT_INTERLEAVED, kind="blocked")),
        (Header(), {}, "D", because(Code.NOT_INTERLEAVED, kind="unknown")),
        (Header(order="interleaved", noop=True), {}, "D", because(Code.NOOP)),
        (Header(imported={"files": []}), {}, "D", because(Code.NOT_INTERLEAVED, kind="imported")),
    ],
)  # fmt: skip
def test_grades(header, known, grade, reason):
    """What a run's design allows, and why it is not the best one."""
    design = grade_run(header, **known)
    assert (design.grade, *design.reasons) == ((grade,) if reason is None else (grade, reason))
    assert design.allows_words == (grade != "D")


def test_sides_on_other_hosts():
    """One host each can say nothing about environments; four each can; a shared host is no group of its own."""
    run = grade_run(Header(order="interleaved"))
    blades = ["h1", "h2", "h3", "h4"]
    assert grade_sides(run, blades, list(reversed(blades))).grade == "A"
    few = because(Code.DIFFERENT_HOSTS, kind="few", fewest=1, needed=4)
    assert grade_sides(run, ["h1"], ["h2"]).reasons == (few,)
    assert grade_sides(run, blades, ["v1", "v2", "v3"]).grade == "D"
    assert grade_sides(run, blades, ["v1", "v2", "v3", "v4"]).grade == "C"
    assert grade_sides(run, ["h1", "h2"], ["h2", "h3"]).grade == "D"
    assert grade_sides(grade_run(Header(order="blocked")), blades, ["v1"]).reasons == (
        because(Code.NOT_INTERLEAVED, kind="blocked"),
    )


# -- every key of a treatment ---------------------------------------------------------------------------------------

NOT_COMPARED = {
    "index": "a place in the plan",
    "labels": "they are what is compared",
    "environment": "hosts are compared by what they are",
    "engine": "it is what is compared",
    "timeout_s": "it is mentioned, by `timeout_differences`",
    "optional": "what is left out has no measure",
    "plain_environment": "containers have none: see the next test",
    "layout": "likewise",
    "layout_seed": "a seed decides which layouts are drawn, and not how",
    "job.profile": "two stores may be compared",
    "job.endpoints": "two stores may be compared",
    "job.operations.0.name": "a part of `operations`, and changed with it",
}
GUEST = Guest(
    "command",
    {"threads": 2},
    OwnCommand(("sleep", "1"), metrics=(MetricSource("m", regex="x"),), services=(OwnService("db", ("d",)),)),
)
LIFECYCLE = Lifecycle((Operation("exec", "exec", ("true",), metrics=(MetricSource("m", regex="x"),)),))
OBJECTS = Objects((SizeClass("tiny", Sizes("fixed", 1, 2, ((1, 1.0),)), (("read", 1.0),)),), profile="p")


def plain_treatment(job):
    one = Treatment(0, {"engine": "docker"}, "lab", "docker", job, until="memory < 10%")
    mount = Mount("volume", "/data", "v")
    settings = ContainerSettings(image="i", storage=(mount,), env={"A": "1"})
    services = {"db": settings}
    one = replace(
        one,
        container=settings,
        open_load=OpenLoad(5.0),
        services=services,
        placement={"db": "lab"},
        host={"governor": "x"},
    )
    return msgspec.to_builtins(one)


def leaves(value, *path):
    """Yield the path of each value in a tree of mappings and lists."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, one in below:
        yield from leaves(one, *path, key)
    if not below:
        yield path


def changed(tree, path):
    """Return the tree with another value at a path."""
    if not path:
        return {True: False, False: True}[tree] if isinstance(tree, bool) else f"{tree} and more"
    copy = list(tree) if isinstance(tree, list | tuple) else dict(tree)
    copy[path[0]] = changed(tree[path[0]], path[1:])
    return copy


@pytest.mark.parametrize("job", [GUEST, LIFECYCLE, OBJECTS], ids=["guest", "lifecycle", "objects"])
def test_every_key_that_can_change_a_measure_is_compared(job):
    """Each value in a treatment, one by one: no other command, time limit or setting goes unnoticed."""
    plain, unnoticed = plain_treatment(job), []
    for path in leaves(plain):
        name = ".".join(map(str, path))
        if not any(name == each or name.startswith(f"{each}.") for each in (*NOT_COMPARED, "job.kind")):
            try:
                other = changed(plain, path)
                found = parameter_differences(stored(plain), stored(other))
            except msgspec.ValidationError:
                continue  # the reader refuses it
            if not found:
                unnoticed.append(name)
    assert not unnoticed


def test_plain_processes_are_compared_in_the_same_environment():
    """Those of a run with containers and those of one without have other search paths and locales."""
    first, second, third = (
        replace(treatment(), engine="native", labels={"engine": "native"}, plain_environment=environment)
        for environment in ("container", "inherit", "")
    )
    beside = replace(treatment(), engine="docker", labels={"engine": "docker"}, plain_environment="container")
    assert names(parameter_differences(first, second)) == [("plain_environment", "refusal")]
    assert not parameter_differences(second, third)
    assert not parameter_differences(first, beside)
    assert not parameter_differences(beside, replace(beside, plain_environment=""))


def test_drawn_and_fixed_layouts_of_plain_processes_are_told_apart():
    """One of them has the effect of the layout in its interval, and the other has not; containers have neither."""
    drawn, fixed = (
        replace(treatment(), engine="native", labels={"engine": "native"}, layout=layout)
        for layout in ("drawn", "fixed")
    )
    assert names(parameter_differences(drawn, fixed)) == [("layout", "refusal")]
    inside = replace(treatment(), engine="docker", labels={"engine": "docker"})
    assert not parameter_differences(replace(inside, layout="drawn"), replace(inside, layout="fixed"))


def test_another_time_limit_is_mentioned():
    """It censors what is slow, and refuses no comparison of what was far from it."""
    first, second = (replace(treatment(), timeout_s=limit) for limit in (60.0, 5.0))
    assert not parameter_differences(first, second)
    assert names(timeout_differences(first, second)) == [("timeout", "warning")]
    assert not timeout_differences(first, first)
