"""What a run ran, in a line."""

import pytest

from bench_master.analysis.subject import describe_subject


def life(command=("sleep", "600"), image="alpine", names=("create", "start", "remove"), engine="docker", **labels):
    """Return a treatment whose jobs are lives of a container."""
    job = {"kind": "lifecycle", "operations": [{"name": name} for name in names]}
    container = {"image": image, "command": command and list(command)}
    return {"labels": labels, "engine": engine, "job": job, "container": container}


def guest(workload, own=None, **labels):
    """Return a treatment whose jobs are a benchmark."""
    job = {"kind": "guest", "workload": workload, "own": own}
    return {"labels": labels, "job": job, "container": {"image": None, "command": None}}


@pytest.mark.parametrize(
    ("treatments", "hosts", "text"),
    [
        ([life()], ["a"], "`sleep 600` in alpine, from create to remove, on host a"),
        ([life(), life()], ["a", "a"], "`sleep 600` in alpine, from create to remove, on host a"),
        ([life(names=["run"])], ["a", "b"], "`sleep 600` in alpine, run, on 2 hosts"),
        ([life(), life(command=["true"])], ["a"], "alpine, from create to remove, on host a"),
        ([life(), life(image="debian")], ["a"], "`sleep 600`, from create to remove, on host a"),
        ([life(), life(names=["run"])], [], "`sleep 600` in alpine"),
        ([life(command=None)], [], "alpine, from create to remove"),
        ([life(engine="native")], ["a"], "`sleep 600`, from create to remove, on host a"),
        ([life(engine="native", image="x"), life()], [], "`sleep 600` in alpine, from create to remove"),
        ([guest("sysbench-cpu")], ["a"], "sysbench-cpu, on host a"),
        ([guest("command", {"command": ["./x", "a b"]})], ["a"], "`./x 'a b'`, on host a"),
        (
            [guest("command", {"command": ["a"]}), guest("command", {"command": ["b"]})],
            ["a"],
            "2 commands, on host a",
        ),
        ([guest("mbw", job="mbw"), life(job="start")], ["a"], "mbw, start (create to remove), on host a"),
        ([life(job=str(number)) for number in range(4)], ["a"], "4 jobs, on host a"),
        ([{"labels": {}, "job": {"kind": "toy"}}], ["a"], "toy, on host a"),
        ([{"labels": {}}], ["a"], ""),
        ([{"labels": {}, "job": 7}], ["a"], ""),
        ([], ["a"], ""),
    ],
)
def test_the_subject_is_what_the_treatments_have_in_common(treatments, hosts, text):
    """Command, image, operations and hosts; several jobs by name; nothing where nobody knows it."""
    assert describe_subject(treatments, hosts) == text


def test_a_long_command_is_shortened():
    """Its beginning and its end are shown."""
    text = describe_subject([life(command=["sh", "-c", "x" * 100 + " --end"])], [])
    assert text.startswith("`sh -c 'xxx")
    assert "--end'` in alpine" in text
    assert len(text) < 80
