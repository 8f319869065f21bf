"""News of a step that reports while it runs: told when they are new, and never in its way."""

import gevent
import pytest
from deadlines import wait_until

from bench_common.treatment import ContainerSettings
from bench_worker import operation_runner
from bench_worker.engines.base import Container, EngineOptions, OperationFailed
from bench_worker.engines.noop import NoopEngine
from bench_worker.operation_runner import PreparationProgress, StepProgress
from bench_workloads.iibench import HEADER, Iibench
from bench_workloads.sysbench_cpu import SysbenchCpu
from bench_workloads.sysbench_oltp import SysbenchOltp

LINES = "Threads started!\n\n[ 1s ] thds: 1 eps: 10.00\n[ 2s ] thds: 1 eps: 20.00\n[ 3s ] thds: 1"


class Printing(NoopEngine):
    """Has printed more each time that it is asked, and fails once there is no more."""

    def __init__(self, *texts):
        super().__init__(EngineOptions("r", "w", 1))
        self.texts = list(texts)

    def read_output(self, container, *, timeout_s):
        if not self.texts:
            raise OperationFailed("not-found", "gone", start_ns=1, end_ns=2)
        return self.texts.pop(0).encode()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(operation_runner, "MIN_INTERVAL_S", 0.0)


def told_by(engine, workload, seconds=0.05):
    told = []
    with StepProgress(engine, workload, 0.0, told.append).follow(Container("c", 1, ContainerSettings()), "run"):
        gevent.sleep(seconds)
    return told


def test_news_are_told_once_and_cleared_at_the_end():
    """What is said again is no news; what is not a whole line yet is not told."""
    engine = Printing("", LINES, LINES, f"{LINES} eps: 30.00\n")
    assert told_by(engine, SysbenchCpu()) == [
        "run: [ 2s ] thds: 1 eps: 20.00",
        "run: [ 3s ] thds: 1 eps: 30.00",
        "",
    ]


def test_an_engine_that_cannot_say_ends_it():
    """The step goes on; nothing is told but that it is over."""
    assert told_by(Printing(), SysbenchCpu()) == [""]


def test_it_ends_with_its_step():
    """Also where that was interrupted."""
    engine, told = Printing(*[f"[ {second}s ] x\n" for second in range(1000)]), []
    following = StepProgress(engine, SysbenchCpu(), 0.0, told.append)

    def interrupted():
        with following.follow(Container("c", 1, ContainerSettings()), "run"):
            gevent.sleep(0.005)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    count = len(told)
    gevent.sleep(0.005)
    assert len(told) == count
    assert told[-1] == ""


def test_a_workload_says_how_often_it_is_worth_a_look():
    """sysbench as often as it is told to report, and not at all without."""
    cpu = SysbenchCpu()
    assert cpu.progress_interval_s(cpu.defaults()) is None
    assert cpu.progress_interval_s(cpu.defaults() | {"report_interval": 3.0}) == 3
    assert Iibench().progress_interval_s({}) > 0


def test_workloads_find_their_latest_report():
    """In what they print while they run."""
    assert SysbenchOltp().progress(LINES) == "[ 2s ] thds: 1 eps: 20.00"
    rows = f"{HEADER}\n5000 0.400 0.400 12500.0 5000 12500.0 300 750.0 750.0\n1000"
    assert Iibench().progress(rows) == "5000 rows in 0.400 s, now 12500.0 rows/s"
    assert Iibench().progress(HEADER) == SysbenchOltp().progress("") == ""


def test_a_preparation_that_takes_long_is_told(monkeypatch):
    """The latest of what is under way, then what remains of it; a short one costs no message."""
    monkeypatch.setattr(operation_runner, "PREPARATION_NOTICE_S", 0.01)
    told = []
    progress = PreparationProgress(told.append)
    with progress.during("starting mariadb"):
        wait_until(lambda: told == ["starting mariadb"], sleep=gevent.sleep)
        with progress.during("importing an image"):
            wait_until(lambda: told[1:] == ["importing an image"], sleep=gevent.sleep)
    monkeypatch.setattr(operation_runner, "PREPARATION_NOTICE_S", 60.0)
    with progress.during("short"):
        gevent.sleep(0)
    assert told == ["starting mariadb", "importing an image", "starting mariadb", ""]
    with PreparationProgress(None).during("x"):
        pass
