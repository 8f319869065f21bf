"""Podman asked to remove a container whose command ends in that very moment."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from deadlines import ANSWER_S

from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import Container, EngineOptions, OperationFailed
from bench_worker.engines.docker.http import DockerHttp
from bench_worker.engines.docker.podman import PodmanEngine

KILL = "sending SIGKILL to container 85"
ENDED = f"cannot remove container 85 as it could not be stopped: {KILL}: container state improper: stopped"
PAUSED = f"cannot remove container 85 as it could not be stopped: {KILL}: container state improper: paused"


@contextmanager
def podman(refusals):
    """Give an engine whose service answers removals with these refusals, and then does what it is asked."""
    refusals = list(refusals)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_DELETE(self):
            status, body = (500, json.dumps({"message": refusals.pop(0)})) if refusals else (204, "")
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *words):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True)
        thread.start()
        engine = PodmanEngine(EngineOptions("r", "w", 1))
        engine._http = DockerHttp(f"tcp://127.0.0.1:{server.server_port}", version="1.41")
        engine._revive_service = lambda: None
        try:
            yield engine
        finally:
            engine._http.close()
            server.shutdown()
            thread.join()


def container():
    made = Container("wb-1", 1, ContainerSettings(image="i"))
    made.handle = "85"
    return made


@pytest.mark.parametrize("times", [1, 3])
def test_what_ends_while_it_is_removed_is_removed(times):
    """Podman refuses to stop it, since it has ended meanwhile; the next time it is removed."""
    gone = container()
    with podman([ENDED] * times) as engine:
        assert engine.remove(gone, timeout_s=ANSWER_S).start_ns
    assert gone.handle is None


def test_any_other_refusal_is_told_at_once():
    """The second answer would have been that it is removed."""
    there = container()
    with podman([PAUSED]) as engine, pytest.raises(OperationFailed, match="improper: paused"):
        engine.remove(there, timeout_s=ANSWER_S)
    assert there.handle == "85", "it is still to be removed"


def test_the_deadline_holds_while_it_is_asked_again():
    """A container that Podman never lets go fails, in Podman's words or for the time that it took."""
    with podman([ENDED] * 1000) as engine, pytest.raises(OperationFailed) as caught:
        engine.remove(container(), timeout_s=0.1)
    assert "improper: stopped" in str(caught.value) or caught.value.kind == "timeout"
