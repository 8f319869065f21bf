"""What every engine has that does not do it otherwise."""

from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import Container, Engine, EngineOptions, EngineStatus, OperationResult
from bench_worker.engines.docker.podman import PodmanEngine
from bench_worker.engines.noop import NoopEngine


class TwoCalls(NoopEngine):
    """An engine whose `run` is the common one; between its two calls the worker was busy with something else."""

    run = Engine.run

    def create(self, container, *, timeout_s):
        return OperationResult(100, 130)

    def start(self, container, *, timeout_s):
        self.remaining_s = timeout_s
        return OperationResult(1000, 1040, end_uncertainty_ns=3)


def test_a_run_of_two_calls_lasts_as_long_as_they_do():
    """It ends with the second; what lies between them is the worker's own and left out."""
    engine = TwoCalls(EngineOptions("r", "w", 1))
    done = engine.run(Container("c", 1, ContainerSettings(image="i")), timeout_s=900.0)  # subject: what is left of it
    assert (done.start_ns, done.end_ns, done.end_uncertainty_ns) == (970, 1040, 3)
    assert 800 < engine.remaining_s < 900


def test_an_engine_that_refuses_this_user_is_not_to_be_installed():
    """Permission denied gets advice on permissions, whichever engine it is; another failure keeps its own."""
    for cause, words in (("[Errno 13] Permission denied", "run as root"), ("no such file", "install Podman")):
        status = EngineStatus("podman", usable=False, reason=f"no Docker Engine answers: {cause}", advice="start it")
        assert words in PodmanEngine._failed(status).advice
