"""What is told of the surroundings of commands in images and of plain processes."""

import hashlib
import io
import platform
import tarfile

from bench_common.requirements import ImageProgram
from bench_worker.engines import surroundings as module
from bench_worker.engines.docker import probe
from bench_worker.engines.docker.http import DockerApiError
from bench_worker.engines.surroundings import dockerd_surroundings, host_surroundings, image_surroundings

GLIBC = b"\0GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\n"
CONFIG = {"Env": ["PATH=/opt:/bin", "LANG=C.UTF-8", "TOKEN=secret", "TZ="], "User": "0:0", "WorkingDir": "/srv"}
CODE = hashlib.sha256(b"code").hexdigest()


def test_of_an_image():
    """Variables that matter, user, directory, C library and the file itself; none that may be a secret."""
    files = {"/bin/sleep": b"code", "/lib64/libc.so.6": GLIBC}
    assert image_surroundings(CONFIG, ImageProgram("sleep"), files.get) == {
        "side variable PATH": "/opt:/bin",
        "side variable LANG": "C.UTF-8",
        "side user": "root",
        "side directory": "/srv",
        "side libc": "glibc 2.36",
        "program sleep": "/bin/sleep",
        "sha256 sleep": CODE,
    }
    musl = {f"/lib/ld-musl-{platform.machine()}.so.1": b""}
    found = image_surroundings({"User": "app:x", "WorkingDir": "/a"}, ImageProgram("x", directory="/d"), musl.get)
    assert found == {"side user": "app", "side libc": "musl"}
    assert "side directory" not in image_surroundings(CONFIG, ImageProgram("sysbench", directory=""), files.get)


class Docker:
    """An engine that has files of one container as archives; a text is a link."""

    def __init__(self, **files):
        self.files = files
        self.removed = []

    def find_image(self, _name):
        return {"Config": {"Env": ["PATH=/opt:/bin"]}}

    def post(self, *_path, **_query):
        return {"Id": "c1"}

    def get(self, *path):
        assert path == ("containers", "c1", "json")
        return {"HostConfig": {"Ulimits": [{"Name": "RLIMIT_NOFILE", "Soft": 512, "Hard": 1024}]}}

    def delete(self, *path, **_query):
        self.removed.append(path)

    def read(self, *path, **query):
        assert path == ("GET", "containers", "c1", "archive")
        found = self.files.get(query["path"])
        if found is None:
            raise DockerApiError(404, "no such file")
        if found == b"broken":
            return found
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as made:
            member = tarfile.TarInfo("it")
            if isinstance(found, str):
                member.type, member.linkname = tarfile.SYMTYPE, found
                made.addfile(member)
            else:
                member.size = len(found)
                made.addfile(member, io.BytesIO(found))
        return out.getvalue()


def test_docker_gives_files_behind_links():
    """Of a container that is removed again; an engine that answers something else says nothing."""
    docker = Docker(**{"/bin/awk": "../etc/awk", "/etc/awk": b"code"})
    found = probe.surroundings(docker, "i", ImageProgram("awk"), {})
    assert (found["program awk"], found["sha256 awk"], found["side open files"]) == ("/bin/awk", CODE, "512")
    assert docker.removed == [("containers", "c1")]
    assert probe.surroundings(Docker(**{"/bin/awk": b"broken"}), "i", ImageProgram("awk"), {}) == {}
    circle = probe.surroundings(Docker(**{"/bin/awk": "awk"}), "i", ImageProgram("awk"), {})
    assert "sha256 awk" not in circle


def test_what_a_daemon_hands_on_is_that_of_its_only_containerd(tmp_path, monkeypatch):
    """It makes the containers, as a child of dockerd or as a service; of another program nothing is known."""

    def process(pid, name, files, nice):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "comm").write_text(f"{name}\n")
        (folder / "limits").write_text(f"Max open files            {files}    524288    files\n")
        (folder / "stat").write_text(f"{pid} (a b) S {' '.join(['0'] * 15)} {nice} 1\n")
        (folder / "exe").symlink_to(f"/usr/bin/{name}")
        return str(folder / "exe")

    listening = [process(7, "dockerd", 1024, 5)]
    monkeypatch.setattr(module, "listening_program", lambda _: listening[0])
    assert dockerd_surroundings("unix:///s", tmp_path) == {"side nice": "5", "side open files": "1024"}
    listening.insert(1, process(8, "containerd", 1048576, 0))
    assert dockerd_surroundings("unix:///s", tmp_path) == {"side nice": "0", "side open files": "1048576"}
    listening.pop(0)
    assert dockerd_surroundings("unix:///s", tmp_path) == {}


def test_of_this_process():
    """What plain processes that it starts take over."""
    found = host_surroundings()
    assert found["side variable LANG"] == "C.UTF-8"
    assert {"side variable PATH", "side user", "side open files", "side nice", "side libc"} <= found.keys()
