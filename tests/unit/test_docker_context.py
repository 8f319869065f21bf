"""Which Docker Engine is weighed, and whether it is the one that the user's own command shows."""

import hashlib
import json

import pytest

from bench_worker.engines.docker import context
from bench_worker.engines.docker.probe import failed_status, status_from


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with the context ``rootless``, and sockets that are files here."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr(context, "DEFAULT_ENDPOINT", f"unix://{tmp_path}/usual.sock")
    select(tmp_path, f"unix://{tmp_path}/rootless.sock")
    return tmp_path


def select(home, host, name="rootless"):
    folder = home / ".docker" / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.json").write_text(json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host}}}))
    (home / ".docker" / "config.json").write_text(json.dumps({"currentContext": name}))


def test_where_the_usual_socket_is_absent_the_context_is_used(home):
    """It is what `docker ps` shows, so nothing is said."""
    (home / "rootless.sock").touch()
    assert context.endpoint() == f"unix://{home}/rootless.sock"
    assert context.other_engine(context.endpoint()) == ""


def test_where_both_are_there_it_is_said_that_docker_ps_shows_another(home):
    """The usual one is weighed, and the status says so, with what to type for the other."""
    for name in ("rootless.sock", "usual.sock"):
        (home / name).touch()
    assert context.endpoint() == f"unix://{home}/usual.sock"
    status = status_from("docker", context.endpoint(), {}, 0, frozenset(), frozenset())
    assert f"export DOCKER_HOST=unix://{home}/rootless.sock" in status.details["other_engine"]


def test_a_context_on_another_host_is_named(home):
    """Its time would be the network's; what to type stands in the advice."""
    select(home, "tcp://10.0.0.5:2376")
    status = failed_status("docker", context.endpoint(), FileNotFoundError(2, "No such file or directory"))
    assert "export DOCKER_HOST=tcp://10.0.0.5:2376" in status.advice


def test_a_rootless_socket_needs_no_context(home):
    """It is where `dockerd-rootless.sh` puts it."""
    (home / ".docker" / "config.json").unlink()
    (home / "runtime").mkdir()
    (home / "runtime" / "docker.sock").touch()
    assert context.endpoint() == f"unix://{home}/runtime/docker.sock"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"currentContext": 7}', '{"currentContext": "none"}'])
def test_a_damaged_configuration_is_that_of_nobody(home, text):
    """Docker's command would complain; an engine that is there can be weighed all the same."""
    (home / ".docker" / "config.json").write_text(text)
    (home / "usual.sock").touch()
    assert (context.endpoint(), context.other_engine(context.endpoint())) == (f"unix://{home}/usual.sock", "")


def test_the_environment_comes_first(home, monkeypatch):
    """DOCKER_HOST is what Docker's own command takes, too; DOCKER_CONTEXT is before the configuration."""
    (home / "rootless.sock").touch()
    (home / ".docker" / "config.json").unlink()
    monkeypatch.setenv("DOCKER_CONTEXT", "rootless")
    assert context.endpoint() == f"unix://{home}/rootless.sock"
    monkeypatch.setenv("DOCKER_HOST", "tcp://h:1")
    assert (context.endpoint(), context.other_engine("tcp://h:1")) == ("tcp://h:1", "")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("containers.conf", '[engine.service_destinations.far]\nuri = "unix:///run/far.sock"\n'),
        ("podman-connections.json", '{"Connection": {"Connections": {"far": {"URI": "unix:///run/far.sock"}}}}'),
    ],
)
def test_a_connection_of_podmans_own_is_followed(tmp_path, monkeypatch, file, text):
    """As its command does, where the variable names one; a name that it has not is no address."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("CONTAINER_CONNECTION", raising=False)
    (tmp_path / "containers").mkdir()
    (tmp_path / "containers" / file).write_text(text)
    assert context.connection_address() == ""
    monkeypatch.setenv("CONTAINER_CONNECTION", "far")
    assert context.connection_address() == "unix:///run/far.sock"
    monkeypatch.setenv("CONTAINER_CONNECTION", "near")
    assert "connection near" in context.connection_address()
