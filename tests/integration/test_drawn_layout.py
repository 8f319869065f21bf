"""A program whose result depends on where its stack lies: under a fixed layout its name looks like a difference."""

import shutil
import subprocess

import pytest
from busybox_image import skip_or_fail
from deadlines import START_S
from workspace import Run

PROGRAM = r"""
#include <stdio.h>
#include <stdint.h>
int main(void) { volatile char here; printf("place: %d\n", 1 + (int)((uintptr_t)&here & 4095)); return 0; }
"""
"""Prints where in a page its stack is: what a program that is faster at some places depends on."""


@pytest.fixture
def names(workspace):
    """Build the program under two names of different length."""
    missing = [tool for tool in ("cc", "setarch") if shutil.which(tool) is None]
    if missing:
        skip_or_fail(f"{missing[0]} is not installed")
    source = workspace.folder / "place.c"
    source.write_text(PROGRAM)
    found = [workspace.folder / name for name in ("a", "b" * 200)]
    subprocess.run(["cc", "-O1", "-o", found[0], source], check=True, timeout=START_S)
    shutil.copy(found[0], found[1])
    return found


def places(workspace, names, layout):
    """Run both in ten rounds without the kernel's own random layout; return where each was in each round."""
    stats = workspace.folder / f"{layout}.stats.gz"
    commands = "".join(f"      {name.name[:1]}: [setarch, --addr-no-randomize, {name}]\n" for name in names)
    scenario = workspace.folder / f"{layout}.yaml"
    scenario.write_text(
        "name: layout\nengines: [native]\nrepeats: 10\nseed: 5\n"
        f"layout: {layout}\njob:\n  workload: command\n  matrix:\n    command:\n{commands}"
        "  metrics: {place: {regex: 'place: (\\d+)', unit: B, better: lower}}\n  primary: place\n"
    )
    ended = workspace.master("run-scenario", "-f", scenario, "-s", stats)
    assert ended.status == 0, ended.err
    run = Run(ended.status, ended.out, ended.err, stats)
    (only,) = run.document["verdicts"]["comparisons"]
    trials = {}
    for job in run.jobs:
        trials.setdefault(job["treatment"]["command"], []).append(job["metrics"]["place"])
    return only["verdict"], trials


def test_name_of_a_program_is_no_difference_where_the_layout_is_drawn(workspace, names):
    """The same program under two names: fixed, the longer one is elsewhere in all rounds; drawn, anywhere."""
    verdict, fixed = places(workspace, names, "fixed")
    assert verdict in ("better", "worse")
    sides = sorted(fixed.values(), key=min)
    # Only the number of the job, which is in its environment, moves it by a few bytes.
    assert max(sides[0]) < min(sides[1])
    assert all(max(one) - min(one) <= 64 for one in sides)
    _, drawn = places(workspace, names, "drawn")
    sides = sorted(drawn.values(), key=min)
    assert max(sides[0]) > min(sides[1])
    assert all(max(one) - min(one) > 1000 for one in sides)
