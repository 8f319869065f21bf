"""From container settings to the words of `docker create`, and from its own words to kinds of failure."""

import socket

import pytest

from bench_common.treatment import ContainerSettings, Mount
from bench_worker.engines.base import RUN_LABEL, Container
from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.docker.cli import ERROR_KINDS, create_flags
from bench_worker.engines.settings import MountRefused

CREATE_FAILED = "docker: Error response from daemon: failed to create shim task: OCI runtime create failed: runc: "


def words(*, allow_host_mounts=False, allow_foreign=False, own_socket=None, **settings):
    container = Container("c1", 7, ContainerSettings(image="i", **settings))
    container.labels.update({RUN_LABEL: "r1"})
    return create_flags(
        container, allow_host_mounts=allow_host_mounts, allow_foreign=allow_foreign, own_socket=own_socket
    )


def test_every_setting_becomes_a_flag():
    """Each in Docker's unit, swap shut off with the memory limit, and the container's own words behind `--`."""
    got = words(
        command=("a", "--b", "c d"),
        memory_bytes=64 << 20,
        cpus=0.5,
        cpuset="0-1",
        network="none",
        env={"K": "v=w x"},
        log_driver="json-file",
        log_options={"max-size": "1m"},
        init=True,
    )
    assert got[-5:] == ["--", "i", "a", "--b", "c d"]
    assert set(got[:-5]) == {
        "--pull=never",
        "--name=c1",
        f"--label={RUN_LABEL}=r1",
        "--env=K=v=w x",
        "--memory=67108864b",
        "--memory-swap=67108864b",
        "--cpus=0.500000000",
        "--cpuset-cpus=0-1",
        "--network=none",
        "--log-driver=json-file",
        "--log-opt=max-size=1m",
        "--init=true",
    }


def test_what_is_not_given_is_the_engines_own_default():
    """No flag beyond name, label and the refusal to pull."""
    assert words() == ["--pull=never", "--name=c1", f"--label={RUN_LABEL}=r1", "--", "i"]


def test_mounts_are_rows_of_comma_separated_values():
    """A comma in a path is quoted, a volume carries the labels, and a memory disk its size."""
    storage = (
        Mount("volume", "/v"),
        Mount("volume", "/n", source="named", read_only=True),
        Mount("tmpfs", "/t,t", size_bytes=9),
    )
    assert [word for word in words(storage=storage) if word.startswith("--mount")] == [
        f"--mount=type=volume,target=/v,volume-label={RUN_LABEL}=r1",
        f"--mount=type=volume,source=named,target=/n,readonly,volume-label={RUN_LABEL}=r1",
        '--mount=type=tmpfs,"target=/t,t",tmpfs-size=9',
    ]


def test_host_directories_are_refused_as_through_the_api(tmp_path):
    """Without the worker's permission, and an engine's socket with it."""
    storage = (Mount("host", "/h", source=str(tmp_path)),)
    with pytest.raises(MountRefused, match="does not allow host mounts"):
        words(storage=storage)
    assert f"--mount=type=bind,source={tmp_path},target=/h" in words(storage=storage, allow_host_mounts=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        with pytest.raises(MountRefused, match="socket"):
            words(storage=storage, allow_host_mounts=True, own_socket=str(tmp_path / "s"))


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?", "unreachable"),
        ("error waiting for container: unexpected EOF", "unreachable"),
        (
            'level=error msg="error waiting"\ndocker: Cannot connect to the Docker daemon at x.\n\nRun it',
            "unreachable",
        ),
        ("Error response from daemon: No such image: a:b", "image-missing"),
        (
            'Error response from daemon: Conflict. The container name "/x" is already in use by container "a"',
            "conflict",
        ),
        ("Error response from daemon: Container ab is paused, unpause the container before exec", "conflict"),
        ("Error response from daemon: Container ab is not running", "conflict"),
        ("Error response from daemon: No such container: x", "not-found"),
        ("docker: Error response from daemon: network nowhere not found", "not-found"),
        ("Error response from daemon: Minimum memory limit allowed is 6MB", "refused"),
        ("Error response from daemon: Requested CPUs are not available - requested 77, available: 0-1", "refused"),
        ('invalid argument "x" for "--cpus" flag: failed to parse x as a rational number', "refused"),
        (CREATE_FAILED + 'exec: "no": executable file not found in $PATH: unknown', "command-not-found"),
        (CREATE_FAILED + 'exec: "/plain": permission denied: unknown', "not-executable"),
        ("Error response from daemon: mkdir /var/lib/docker/x: no space left on device", "disk-full"),
        ("Error response from daemon: segment 5 is odd", "engine"),
    ],
)
def test_the_command_lines_words_have_kinds(said, kind):
    """The API's status is not printed; the kind follows from the words all the same."""
    assert CommandLine("docker", error_kinds=ERROR_KINDS).classify_error(said) == kind
