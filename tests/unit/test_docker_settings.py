"""From container settings to Docker's own, and the mounts that are refused."""

import io
import socket
import tarfile

import pytest

from bench_common.treatment import ContainerSettings, Mount
from bench_worker.engines.base import RUN_LABEL, Container
from bench_worker.engines.docker.cli import create_flags
from bench_worker.engines.docker.settings import create_body, limit_flags, tar_archive
from bench_worker.engines.native import labels as native_labels
from bench_worker.engines.settings import KNOWN_SOCKETS, MountRefused, directory_name, safe_host_directory

NO_CONSENT = {"allow_host_mounts": False, "allow_foreign": False, "own_socket": None}


def arguments(*, allow_host_mounts=False, allow_foreign=False, own_socket=None, **settings):
    container = Container("c1", 7, ContainerSettings(image="i", **settings))
    container.labels.update({RUN_LABEL: "r1"})
    return create_body(
        container, allow_host_mounts=allow_host_mounts, allow_foreign=allow_foreign, own_socket=own_socket
    )


def test_every_setting_reaches_the_engine():
    """Each setting is passed on in Docker's unit, and swap is shut off with the memory limit."""
    got = arguments(
        command=("a", "b c"),
        memory_bytes=64 << 20,
        cpus=0.5,
        cpuset="0-1",
        network="none",
        env={"K": "v"},
        log_driver="json-file",
        log_options={"max-size": "1m"},
        init=True,
        directory="/srv",
    )
    assert got["WorkingDir"] == "/srv"
    host = got["HostConfig"]
    assert got["Cmd"] == ["a", "b c"]
    assert got["Env"] == ["K=v"]
    assert got["Labels"] == {RUN_LABEL: "r1"}
    assert (host["Memory"], host["MemorySwap"]) == (64 << 20, 64 << 20)
    assert host["NanoCpus"] == 500_000_000
    assert host["CpusetCpus"] == "0-1"
    assert host["NetworkMode"] == "none"
    assert host["Init"] is True
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "1m"}}


def test_a_log_file_on_the_host_needs_the_workers_leave():
    """Podman would write there, as root, what a container prints."""
    named = {"log_driver": "k8s-file", "log_options": {"path": "/etc/profile.d/x.sh"}}
    with pytest.raises(MountRefused, match=r"path=/etc/profile.d/x.sh names a file of the host.*--allow-host-mounts"):
        arguments(allow_host_mounts=True, **named)
    config = arguments(allow_foreign=True, **named)["HostConfig"]["LogConfig"]["Config"]
    assert config == {"path": "/etc/profile.d/x.sh"}
    container = Container("c1", 7, ContainerSettings(image="i", **named))
    with pytest.raises(MountRefused):
        create_flags(container, **NO_CONSENT)


CONFINED = {
    "runtime": "crun",
    "pids": 64,
    "ulimits": {"nofile": "512:1024", "core": "-1"},
    "blkio_weight": 300,
    "device_read_bps": {"/dev/sda": 1 << 20},
    "device_write_iops": {"/dev/sda": 100, "/dev/sdb": 200},
    "read_only": True,
    "security_options": ("no-new-privileges",),
    "cap_add": ("SYS_NICE",),
    "cap_drop": ("ALL",),
}


def test_confinement_reaches_the_engine():
    """Each in Docker's own words and units."""
    host = arguments(**CONFINED)["HostConfig"]
    assert (host["Runtime"], host["PidsLimit"], host["BlkioWeight"]) == ("crun", 64, 300)
    assert host["Ulimits"] == [
        {"Name": "nofile", "Soft": 512, "Hard": 1024},
        {"Name": "core", "Soft": -1, "Hard": -1},
    ]
    assert host["BlkioDeviceReadBps"] == [{"Path": "/dev/sda", "Rate": 1 << 20}]
    assert host["BlkioDeviceWriteIOps"] == [{"Path": "/dev/sda", "Rate": 100}, {"Path": "/dev/sdb", "Rate": 200}]
    assert host["ReadonlyRootfs"] is True
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert (host["CapAdd"], host["CapDrop"]) == (["SYS_NICE"], ["ALL"])


def test_confinement_is_the_same_on_the_command_line():
    """The same settings as flags."""
    assert set(limit_flags(ContainerSettings(**CONFINED))) == {
        "--runtime=crun",
        "--pids-limit=64",
        "--ulimit=nofile=512:1024",
        "--ulimit=core=-1",
        "--blkio-weight=300",
        "--device-read-bps=/dev/sda:1048576",
        "--device-write-iops=/dev/sda:100",
        "--device-write-iops=/dev/sdb:200",
        "--read-only=true",
        "--security-opt=no-new-privileges",
        "--cap-add=SYS_NICE",
        "--cap-drop=ALL",
    }
    assert limit_flags(ContainerSettings()) == []


def test_what_is_not_given_is_the_engines_own_default():
    """Nothing is limited, and nobody is privileged or given a terminal, unasked."""
    got = arguments()
    assert "Cmd" not in got
    assert "Tty" not in got
    assert not {"Memory", "NanoCpus", "CpusetCpus", "Privileged", "Init", "LogConfig"} & set(got["HostConfig"])


def test_a_volume_carries_the_labels_and_tmpfs_its_size():
    """A volume that Docker makes for a container can be found again by its label."""
    storage = (
        Mount("volume", "/v"),
        Mount("volume", "/n", source="named", read_only=True),
        Mount("tmpfs", "/t", size_bytes=9),
    )
    anonymous, named, memory = arguments(storage=storage)["HostConfig"]["Mounts"]
    assert anonymous["VolumeOptions"]["Labels"] == {RUN_LABEL: "r1"}
    assert anonymous.get("Source") is None
    assert (named["Source"], named["ReadOnly"]) == ("named", True)
    assert memory["TmpfsOptions"]["SizeBytes"] == 9


def test_host_directories_need_the_workers_permission(tmp_path):
    """Without the worker's own consent a scenario cannot mount the host."""
    storage = (Mount("host", "/h", source=str(tmp_path)),)
    with pytest.raises(MountRefused, match="does not allow host mounts"):
        arguments(storage=storage)
    mounts = arguments(storage=storage, allow_host_mounts=True)["HostConfig"]["Mounts"]
    assert mounts[0]["Source"] == str(tmp_path)


@pytest.mark.parametrize(
    "source", ["/var/run/docker.sock", "/run/docker.sock", "/", "/run", "/var/run", "/run/../run", "/run/containerd"]
)
def test_the_engines_socket_is_never_mounted(source):
    """Neither the socket nor a directory above it, by whatever path."""
    with pytest.raises(MountRefused, match="engine's socket"):
        safe_host_directory(source, KNOWN_SOCKETS)


def test_an_engine_elsewhere_is_protected_too(tmp_path):
    """The socket that DOCKER_HOST names counts, also through a symbolic link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    storage = (Mount("host", "/h", source=str(tmp_path / "link")),)
    with pytest.raises(MountRefused, match="engine's socket"):
        arguments(storage=storage, allow_host_mounts=True, own_socket=str(tmp_path / "real" / "d.sock"))


@pytest.mark.parametrize(
    ("source", "why"), [("/proc/1/root", "kernel's view"), ("/dev", "kernel's view"), ("x/y", "absolute")]
)
def test_ways_round_are_closed(source, why):
    """/proc leads to the whole host, and a relative path to nobody knows where."""
    with pytest.raises(MountRefused, match=why):
        safe_host_directory(source, KNOWN_SOCKETS)


def test_any_other_socket_is_refused(tmp_path):
    """A socket is a service of the host, whichever it is."""
    path = tmp_path / "service"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        with pytest.raises(MountRefused, match="is a socket"):
            safe_host_directory(str(path), KNOWN_SOCKETS)


def test_a_host_directory_of_its_own_needs_no_permission(tmp_path, monkeypatch):
    """It is the worker's, named after the container, where the clean-up looks."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    got = arguments(storage=(Mount("host", "/var/lib/mysql"), Mount("host", "/d")))
    first, second = got["HostConfig"]["Mounts"]
    assert (first["Type"], first["Target"]) == ("bind", "/var/lib/mysql")
    assert first["Source"] == str(native_labels.private_root() / "c1-host" / "var%2Flib%2Fmysql")
    assert second["Source"] == str(native_labels.private_root() / "c1-host" / "d")


def test_a_data_container_is_not_mounted_but_taken_over():
    """Its volumes are where it has them."""
    got = arguments(storage=(Mount("data_container", "/d"), Mount("volume", "/v")))
    assert got["HostConfig"]["VolumesFrom"] == ["c1-data"]
    assert [mount["Target"] for mount in got["HostConfig"]["Mounts"]] == ["/v"]
    assert "VolumesFrom" not in arguments()["HostConfig"]


def test_files_become_an_archive_of_the_root():
    """Everybody can read them, and they are nobody's but root's."""
    packed = tar_archive({"/etc/a/x.cnf": "one\n", "/y": "\u00e4"})
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = {member.name: (member.mode, member.uid, member.size) for member in archive.getmembers()}
        assert members == {"etc/a/x.cnf": (0o644, 0, 4), "y": (0o644, 0, 2)}
        assert archive.extractfile("etc/a/x.cnf").read() == b"one\n"


def test_a_port_is_published_at_one_address_and_one_that_docker_picks():
    """A service for jobs of other hosts listens at the address that its worker says, not at every one."""
    container = Container("c1", 7, ContainerSettings(image="i"))
    container.publish = ("10.0.0.5", 80)
    got = create_body(container, **NO_CONSENT)
    assert got["ExposedPorts"] == {"80/tcp": {}}
    assert got["HostConfig"]["PortBindings"] == {"80/tcp": [{"HostIp": "10.0.0.5", "HostPort": ""}]}
    assert "--publish=10.0.0.5::80" in create_flags(
        container, allow_host_mounts=True, allow_foreign=False, own_socket=None
    )
    assert "PortBindings" not in arguments()["HostConfig"]


def test_volumes_are_shared_with_other_containers():
    """Those of a service, where its socket is, and those of a data container beside them."""
    storage = (Mount("data_container", "/data"),)
    container = Container("c1", 7, ContainerSettings(image="i", storage=storage))
    container.shares = ("c1-mariadb",)
    got = create_body(container, **NO_CONSENT)
    assert got["HostConfig"]["VolumesFrom"] == ["c1-data", "c1-mariadb"]
    plain = Container("c1", 7, ContainerSettings(image="i"))
    plain.shares = ("c1-mariadb",)
    assert "--volumes-from=c1-mariadb" in create_flags(
        plain, allow_host_mounts=False, allow_foreign=False, own_socket=None
    )
    assert "VolumesFrom" not in arguments()["HostConfig"]


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ({"log_driver": "syslog"}, "log driver 'syslog' writes outside"),
        ({"log_driver": "journald"}, "log driver 'journald' writes outside"),
        ({"log_driver": "grafana/loki:latest"}, "log driver 'grafana/loki:latest' writes outside"),
        ({"log_options": {"gelf-address": "udp://x:1"}}, "log option gelf-address=udp://x:1 may have a log"),
    ],
)
def test_a_log_outside_of_the_engine_needs_the_workers_consent(named, why):
    """A driver may open a socket, and an option may say where the driver of the engine's own choice writes."""
    with pytest.raises(MountRefused, match=why):
        arguments(allow_host_mounts=True, **named)
    assert arguments(allow_foreign=True, **named)["HostConfig"]["LogConfig"]["Config"] == named.get("log_options", {})


def test_no_two_paths_in_a_container_share_a_directory():
    """Nor does one leave the directory of its container, however it is written or long."""
    paths = ["/a/b", "/a-b", "/a%2Fb", "/..", "/.", "/a/../b", f"/{'x/' * 200}y", f"/{'x/' * 200}z"]
    names = [directory_name(path) for path in paths]
    assert len(set(names)) == len(paths)
    assert not {"", ".", ".."} & set(names)
    assert all("/" not in name and len(name) <= 255 for name in names)
    assert directory_name("/a/b/") == directory_name("/a/b")


def test_the_engines_own_log_files_need_no_consent():
    """They are removed with the container."""
    for driver in ("none", "json-file", "local", "k8s-file"):
        kept = arguments(log_driver=driver, log_options={"max-size": "1m", "tag": "x"})["HostConfig"]["LogConfig"]
        assert kept == {"Type": driver, "Config": {"max-size": "1m", "tag": "x"}}
