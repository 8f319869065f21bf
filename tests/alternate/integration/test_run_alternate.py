"""`alternate` with real runs: interrupted, resumed to its end, and compared by the pair."""

import itertools
import json
import signal

import pytest
from attention import undisturbed
from deadlines import END_S, LONG_TEST_S, START_S, wait_until

SLEEPS = {"old": "0.01", "new": "0.3"}


@pytest.mark.timeout(LONG_TEST_S)
def test_an_interrupted_series_goes_on_and_finds_the_slower_build(workspace):
    """Ctrl-C ends the run in progress, whose pair is made again as a whole; six pairs carry the word."""
    series = (workspace.folder / f"series-{number}" for number in itertools.count())
    # Six pairs are few: a single one in which the machine stands still for as long leaves them undecided.
    undisturbed(lambda: check_an_interrupted_series(workspace, next(series)))


def check_an_interrupted_series(workspace, folder):
    """Interrupt a series in its second pair, let it go on, and look at what is said of all six."""
    program = workspace.folder / "program"
    put = {
        side: f"printf '#!/bin/sh\\nsleep {seconds}\\n' > {program} && chmod +x {program}"
        for side, seconds in SLEEPS.items()
    }
    first = workspace.start(
        "bench-master", "alternate", folder, "--old", put["old"], "--new", put["new"], "--pairs", "6", "--seed", "3",
        "--", "weigh", "native", "--job", "command", "--repeats", "1", "--warmup", "0", "--", program,
    )  # fmt: skip

    def made():
        try:
            return json.loads((folder / "alternate.json").read_text())["runs"]
        except FileNotFoundError:
            return []

    wait_until(lambda: len(made()) == 3, 3 * START_S, "the first run of the second pair")
    first.process.send_signal(signal.SIGINT)
    ended = first.wait_for_exit(END_S)
    assert ended.status == 130
    assert "to go on: bench-master alternate" in ended.err
    again = workspace.start("bench-master", "alternate", folder, "--format", "json")
    done = again.wait_for_exit(12 * END_S)
    assert done.status == 0, done
    assert "of a pair that was cut" in done.err
    assert len(made()) == 12
    assert len(list(folder.glob("*.stats.gz"))) == 12
    assert any((folder / "cut").iterdir())
    (found,) = json.loads(done.out)["comparisons"]
    assert (found["verdict"], found["rounds"]) == ("slower", 6)
    assert found["ratio"] > 3.0
