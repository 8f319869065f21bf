"""Jobs in a container that was prepared once, on a fake engine: shared where made alike, and never left behind."""

import gevent
import pytest
from deadlines import ANSWER_S
from places import DATA

from bench_common.messages import RESULTS
from bench_common.records import Outcome
from bench_common.treatment import ContainerSettings, Guest, Treatment
from bench_master.run.results import to_rows, unpack_results
from bench_worker.engines.base import OperationFailed, OperationResult
from bench_worker.engines.noop import NoopEngine
from bench_worker.job_executor import JobExecutor, RunContext
from bench_worker.outbox import Outbox
from bench_workloads.registry import workload
from bench_workloads.script import job_script, preparation_script

PRINTED = (DATA / "sysbench" / "fileio-rndrw.txt").read_bytes()


class FileEngine(NoopEngine):
    """Keeps a list of what was asked of it, and fails the commands that the test names."""

    def __init__(self, options, failing):
        super().__init__(options)
        self.failing, self.there, self.asked = failing, set(), []

    def create(self, container, *, timeout_s):
        container.handle = container.name
        self.there.add(container.name)
        self.asked.append("create")
        return OperationResult(1, 2)

    def exec(self, container, argv, *, timeout_s):
        assert container.name in self.there
        gevent.sleep(0)
        self.asked.append(argv[-1])
        if argv[-1] in self.failing and self.failing.remove(argv[-1]) is None:
            raise OperationFailed("exit-code", "exit code 1", start_ns=3, end_ns=4)
        return OperationResult(3, 4, exit_code=0, stdout=PRINTED)

    def remove(self, container, *, timeout_s):
        self.there.discard(container.name)
        self.asked.append("remove")
        return OperationResult(5, 6)


class Scene:
    """A worker with a treatment of sysbench-fileio for each mapping of parameters and settings."""

    def __init__(self, *treatments, slots=1, keep=False, failing=()):
        self.frames, self.engine, self.slots = [], None, slots
        outbox = Outbox(1, lambda frame: self.frames.append(frame) or True)

        def open_engine(_name, options):
            self.engine = FileEngine(options, list(failing))
            return self.engine

        context = RunContext("run", "w", slots, noop=False, keep=keep, allow_host_mounts=False)
        self.executor = JobExecutor(context, outbox, open_engine)
        for index, (params, settings) in enumerate(treatments):
            job = Guest("sysbench-fileio", workload("sysbench-fileio").defaults() | {"prepare": "once"} | params)
            self.executor.define(Treatment(index, {}, None, "fake", job, ContainerSettings(image="s", **settings)))

    def run(self, treatment, tickets):
        trial = treatment
        self.executor.take(treatment, trial, [(one, 0, 0) for one in tickets], concurrency=self.slots, batch=1)
        with gevent.Timeout(ANSWER_S):
            while not self.executor.idle:
                gevent.sleep(0.001)
            gevent.sleep(0)

    def outcomes(self):
        messages = [RESULTS.decode(frame) for frame in self.frames]
        batches = [unpack_results(message, [1, 1], [0, 1]) for message in messages]
        return [Outcome(row) for batch in batches for row in to_rows([batch], [0], [0])[0]["outcome"].tolist()]


def test_files_are_made_once_for_the_jobs_of_all_treatments_that_make_them_alike():
    """Reads and writes by any number of threads use the same files; the container goes with the run."""
    scene = Scene(({"mode": "rndwr"}, {}), ({"mode": "rndrd", "threads": 4}, {}))
    scene.run(0, [0, 1])
    scene.run(1, [2, 3])
    assert scene.outcomes() == [Outcome.DONE] * 4
    assert scene.engine.asked == ["create", "prepare", *["run"] * 4]
    assert len(scene.engine.there) == 1
    scene.executor.release()
    assert not scene.engine.there


@pytest.mark.parametrize(
    "other",
    [
        ({"total_size": 2**26}, {}),
        ({"mode": "seqwr"}, {}),
        ({}, {"memory_bytes": 2**29}),
    ],
)
def test_other_files_or_settings_have_a_container_of_their_own(other):
    """Files of another size, files that the run writes anew, and another memory limit."""
    scene = Scene(({}, {}), other)
    scene.run(0, [0])
    scene.run(1, [1])
    assert scene.engine.asked == ["create", "prepare", "run"] * 2
    scene.executor.release()
    assert not scene.engine.there


def test_concurrent_jobs_do_not_share_files():
    """Two in flight of six: two containers, each prepared once."""
    scene = Scene(({}, {}), slots=2)
    scene.run(0, range(6))
    assert scene.outcomes() == [Outcome.DONE] * 6
    assert [scene.engine.asked.count(what) for what in ("create", "prepare", "run")] == [2, 2, 6]


@pytest.mark.parametrize("failing", ["prepare", "run"])
def test_after_a_failure_the_next_job_has_new_files(failing):
    """The container in which something failed is removed, whatever is in it."""
    scene = Scene(({}, {}), failing=[failing])
    scene.run(0, range(3))
    assert scene.outcomes() == [Outcome.FAILED, Outcome.DONE, Outcome.DONE]
    first = ["create", "prepare", *(["run"] if failing == "run" else []), "remove"]
    assert scene.engine.asked == [*first, "create", "prepare", "run", "run"]


def test_containers_are_kept_where_the_user_keeps_them():
    """With `--keep` nothing is removed."""
    scene = Scene(({}, {}), keep=True)
    scene.run(0, [0])
    scene.executor.release()
    assert len(scene.engine.there) == 1


def test_a_job_in_a_prepared_container_is_its_command_alone():
    """To make the container and the files is no operation of a job, and has no row in a report."""
    job = Guest("sysbench-fileio", workload("sysbench-fileio").defaults() | {"prepare": "once"})
    treatment = Treatment(0, {}, None, "fake", job, ContainerSettings(image="s"))
    assert [(one.kind, one.name) for one in job_script(treatment)] == [("exec", "run")]
    assert [one.name for one in preparation_script(treatment)] == ["create", "start", "prepare"]
