"""Swap off while a job runs: asked for by a key, refused where it is not allowed, read from the kernel's table."""

import msgspec
import pytest

from bench_common.errors import ScenarioError
from bench_common.job_kind import read_job
from bench_common.treatment import Treatment
from bench_master.run.preflight import check_compatibility
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_worker.host.swap_guard import swap_areas

TABLE = """\
Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/dev/sda2                               partition\t2097148\t\t0\t\t-2
/var/my\\040swap                         file\t\t8188\t\t12\t\t5
"""
STATUS = {"name": "native", "usable": True, "operations": [], "settings": [], "inapplicable": ["image"]}


def treatment(swap):
    """Return the treatment of a scenario whose job has this key."""
    text = f"name: a\nengines: [native]\njob: {{workload: mbw, swap: {swap}}}\n"
    return parse_scenario(Source("s.yaml", text)).treatments[0]


def reasons(info, swap="off"):
    """Return why a worker that says this of itself cannot run the treatment."""
    told = {"engines": {"native": STATUS}, "allow_native": True, **info}
    return check_compatibility([treatment(swap)], environment="local", slots=1, info=told, noop=False).reasons


def test_areas_have_their_path_and_priority():
    """White space in a path is written as octal by the kernel."""
    assert swap_areas(TABLE) == [("/dev/sda2", -2), ("/var/my swap", 5)]
    assert swap_areas(TABLE.splitlines()[0]) == []


@pytest.mark.parametrize("swap", ["off", "as-is"])
def test_the_key_reaches_the_treatment_and_back(swap):
    """A job says so; the workers are told."""
    made = treatment(swap)
    assert made.swap == swap
    assert msgspec.convert(made.to_dict(), Treatment, dec_hook=read_job) == made


def test_another_word_is_refused():
    """There are two states to ask for."""
    with pytest.raises(ScenarioError, match="unknown state of swap 'on'"):
        treatment("on")


@pytest.mark.parametrize(
    ("info", "fits"),
    [
        ({}, False),
        ({"fingerprint": {"swap": 1 << 30}}, False),
        ({"fingerprint": {"swap": None}}, False),
        ({"fingerprint": {"swap": 0}}, True),
        ({"fingerprint": {"swap": 1 << 30}, "allow_swapoff": True}, True),
    ],
)
def test_a_host_must_allow_it_unless_it_has_none(info, fits):
    """A worker that does not say that it may, may not."""
    assert (reasons(info) == ()) is fits
    if not fits:
        assert "start it with --allow-swapoff" in reasons(info)[0]
    assert reasons(info, "as-is") == ()
