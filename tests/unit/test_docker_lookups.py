"""What a Docker Engine is asked before and after a run: what is missing, and what runs left behind."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from deadlines import ANSWER_S

from bench_common.errors import InfrastructureError
from bench_common.treatment import ContainerSettings, Mount
from bench_worker.engines.docker.http import DockerHttp, TimedRequest
from bench_worker.engines.docker.leftovers import find_leftovers
from bench_worker.engines.docker.probe import forbidden_resources, missing_resources

IMAGE = "weighbridge/sysbench:latest"
FOUND = {
    f"/images/{IMAGE}/json": {"Id": "sha256:1"},
    "/networks": [{"Name": "bridge", "Id": "n"}, {"Name": "lab", "Id": "m"}],
    "/networks/lab": {"Name": "lab", "Labels": {"weighbridge.run": "r"}},
    "/info": {"Plugins": {"Log": ["json-file", "syslog"]}, "Runtimes": {"runc": {}}},
    "/containers/json": [{"Id": "c", "Names": ["/wb-1"], "Labels": {"weighbridge.run": "r"}, "Created": 1}],
    "/images/json": [{"Id": "i", "RepoTags": ["weighbridge/commit:x"], "Labels": None}],
    "/volumes": {"Volumes": [{"Name": "v"}]},
}


@contextmanager
def engine(answers):
    """Give the requests to an engine that answers so, and what it was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            place = urlsplit(self.path)
            path = unquote(place.path).removeprefix("/v1.41")
            asked.append((path, parse_qs(place.query)))
            answer = answers.get(path, (404, {"message": "no such thing"}))
            status, body = answer if isinstance(answer, tuple) else (200, answer)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *words):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True)
        thread.start()
        http = DockerHttp(f"tcp://127.0.0.1:{server.server_port}", version="1.41")
        try:
            yield TimedRequest(http, ANSWER_S), asked
        finally:
            http.close()
            server.shutdown()
            thread.join()


def test_nothing_is_missing_where_all_is_there():
    """An image is asked for by its whole name, a network by its own."""
    settings = ContainerSettings(image=IMAGE, network="lab", log_driver="syslog", runtime="runc")
    with engine(FOUND) as (requests, asked):
        assert missing_resources(requests, settings) == []
    assert [path for path, _ in asked][:2] == [f"/images/{IMAGE}/json", "/networks/lab"]


def test_each_thing_that_is_missing_is_named():
    """With the nearest right spelling."""
    settings = ContainerSettings(image="other", network="lap", log_driver="sislog", runtime="runq")
    with engine(FOUND) as (requests, _):
        image, network, driver, runtime = missing_resources(requests, settings)
    assert image.startswith("image 'other' is not on this host")
    assert "did you mean 'lab'" in network
    assert "did you mean 'syslog'" in driver
    assert "did you mean 'runc'" in runtime


def test_what_others_made_is_forbidden_without_consent():
    """A volume or network without our label; a volume that is not there is made by the run."""
    answers = {**FOUND, "/volumes/prod": {"Name": "prod"}, "/networks/prod": {"Name": "prod", "Labels": {"a": "b"}}}
    storage = tuple(Mount("volume", f"/{name}", name) for name in ("prod", "new", ""))
    settings = ContainerSettings(image=IMAGE, network="prod", storage=storage)
    with engine(answers) as (requests, _):
        assert missing_resources(requests, settings) == []
        volume, network = forbidden_resources(requests, settings)
        (borrowed,) = forbidden_resources(requests, ContainerSettings(image=IMAGE, network="container:db"))
    assert volume.startswith("volume 'prod' is there and was not made by Weighbridge")
    assert network.startswith("network 'prod' was not made by Weighbridge")
    assert borrowed.startswith("network 'container:db' was not made by Weighbridge")


def test_an_engine_that_fails_is_no_missing_thing():
    """What it lacks is then unknown."""
    with (
        engine({"/images/i/json": (500, {"message": "database not open"})}) as (requests, _),
        pytest.raises(InfrastructureError, match="database not open"),
    ):
        missing_resources(requests, ContainerSettings(image="i"))


class BeingWritten(dict):
    """Answers of a Podman whose store another process writes during the first requests for its image."""

    def __init__(self, times):
        super().__init__(FOUND)
        self.times = times

    def get(self, path, default=None):
        if path == f"/images/{IMAGE}/json" and self.times:
            self.times -= 1
            return 500, {"message": f'reading image "1": locating image with ID "{self.times}": image not known'}
        return super().get(path, default)


@pytest.mark.parametrize("times", [1, 3])
def test_an_image_is_asked_for_again_while_the_store_is_written(times):
    """Podman has found its name, and fails by the identity that it has just read."""
    with engine(BeingWritten(times)) as (requests, asked):
        assert missing_resources(requests, ContainerSettings(image=IMAGE)) == []
    assert len(asked) == times + 1


def test_an_image_is_not_asked_for_for_ever():
    """At the deadline the engine's own words are told."""
    with engine(BeingWritten(10**6)) as (requests, _):
        requests.timeout_s = 0.1
        requests.restart()
        with pytest.raises(InfrastructureError, match=r"image not known|no answer in"):
            missing_resources(requests, ContainerSettings(image=IMAGE))


def test_leftovers_are_found_by_their_labels():
    """In the order in which they have to go; stopped containers are among them."""
    with engine(FOUND) as (requests, asked):
        found = find_leftovers(requests, "docker", "r", "w")
    assert [(one.what, one.name, one.run_id) for one in found] == [
        ("container", "wb-1", "r"),
        ("image", "weighbridge/commit:x", ""),
        ("network", "bridge", ""),
        ("network", "lab", ""),
        ("volume", "v", ""),
    ]
    assert {json.loads(query["filters"][0])["label"][0] for _, query in asked} == {"weighbridge.run=r"}
    assert asked[0][1]["all"] == ["1"]


def test_an_image_that_vanishes_while_images_are_listed_is_asked_for_again():
    """Podman fails then; an engine that goes on failing is an error."""
    gone = (500, {"message": "x: image not known"})
    with (
        engine({**FOUND, "/images/json": gone}) as (requests, asked),
        pytest.raises(InfrastructureError, match="docker cannot list what runs left behind: x: image not known"),
    ):
        find_leftovers(requests, "docker", None, None)
    assert [path for path, _ in asked].count("/images/json") == 10
