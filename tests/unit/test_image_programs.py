"""Where in an image a program is looked up, and what is said of one that is not there."""

from types import SimpleNamespace

import pytest

from bench_common.requirements import ImageProgram
from bench_common.treatment import CONTAINER_PATH
from bench_worker.engines.docker.probe import absent_program
from bench_worker.engines.image_programs import absent_reason, find_in_root, names_in_root, program_places

CONFIG = {"Env": ["A=b", "PATH=/opt/bin:/bin"], "WorkingDir": "/srv"}


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        (ImageProgram("tool"), ("/opt/bin/tool", "/bin/tool")),
        (ImageProgram("tool", "/own:/bin"), ("/own/tool", "/bin/tool")),
        (ImageProgram("/x/tool"), ("/x/tool",)),
        (ImageProgram("./tool"), ("/srv/tool",)),
        (ImageProgram("./tool", directory="/here"), ("/here/tool",)),
        (ImageProgram("tool", covered=("/srv", "/op")), ("/opt/bin/tool", "/bin/tool")),
    ],
)
def test_a_program_is_looked_up_as_a_container_does(wanted, places):
    """A name on the scenario's PATH, or else the image's; a path from the working directory."""
    assert program_places(wanted, CONFIG) == places


@pytest.mark.parametrize(
    "wanted",
    [
        ImageProgram("tool", covered=("/opt",)),
        ImageProgram("/x/tool", covered=("/x/tool",)),
        ImageProgram("/x/tool", covered=("/",)),
        ImageProgram("../tool"),
        ImageProgram("tool", "bin:/bin"),
        ImageProgram("/proc/self/exe"),
    ],
)
def test_where_something_else_may_have_the_program_nothing_is_said(wanted):
    """Below a mount or the kernel's file systems, at a file of the scenario, on a PATH that depends on the place."""
    assert program_places(wanted, CONFIG) == ()


def test_an_entry_point_starts_what_it_likes():
    """The command is then its arguments; without anything in the image's configuration the usual PATH counts."""
    assert program_places(ImageProgram("tool"), {**CONFIG, "Entrypoint": ["/init"]}) == ()
    assert program_places(ImageProgram("tool"), {}) == tuple(f"{one}/tool" for one in CONTAINER_PATH.split(":"))


def test_links_are_followed_within_an_unpacked_image(tmp_path):
    """Never out of it; a directory, a link that leads nowhere and a circle are no programs."""
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/awk").write_text("")
    links = {
        "bin": "usr/bin",
        "abs": "/usr/bin/awk",
        "up": "../../usr/bin/awk",
        "out": "/etc/hostname",
        "circle": "circle",
        "etc-of-host": "/etc",
    }
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    there = {name for name in ("/bin/awk", "/abs", "/up", "/usr/bin/awk") if find_in_root(name, tmp_path)}
    assert there == {"/bin/awk", "/abs", "/up", "/usr/bin/awk"}
    gone = ("/out", "/circle", "/usr/bin", "/bin/sed", "/abs/x", "/etc-of-host/hostname")
    assert not any(find_in_root(name, tmp_path) for name in gone)
    assert names_in_root(tmp_path, ["/bin/x", "/nowhere/x", "/etc-of-host/x"]) == ["awk"]


def test_of_several_layers_the_highest_that_has_a_file_counts(tmp_path):
    """A link of one layer leads to a file of another one."""
    upper, lower = tmp_path / "upper", tmp_path / "lower"
    (upper / "usr/bin").mkdir(parents=True)
    (lower / "usr/bin").mkdir(parents=True)
    (lower / "bin").symlink_to("usr/bin")
    for layer in (upper, lower):
        (layer / "usr/bin/awk").write_text("")
    (lower / "usr/bin/sed").write_text("")
    assert find_in_root("/bin/awk", upper, lower) == upper / "usr/bin/awk"
    assert find_in_root("/bin/sed", upper, lower) == lower / "usr/bin/sed"
    assert find_in_root("/bin/tr", upper, lower) is None
    (upper / "etc").mkdir()
    (lower / "etc").symlink_to("/etc")
    assert find_in_root("/etc/passwd", upper, lower) is None, "a link that a directory covers leads nowhere"


def test_what_is_absent_is_named_with_its_image():
    """A name with where it was looked for and the nearest that is there, a path with what to do."""
    places = ("/bin/sleeep", "/usr/bin/sleeep")
    told = absent_reason("i", ImageProgram("sleeep"), places, ["sleep", "sh"])
    assert told == "image 'i' has no program 'sleeep' in /bin:/usr/bin (did you mean 'sleep'?)"
    told = absent_reason("i", ImageProgram("./x.sh"), ["/srv/x.sh"])
    assert told.startswith("image 'i' has no program './x.sh' (/srv/x.sh): write the path")


class Docker:
    """Answers of an engine with one image that has a program."""

    def __init__(self, **config):
        self.config = config
        self.asked = []

    def find_image(self, _name):
        return {"Config": self.config}

    def post(self, *path, body):
        self.asked.append((*path, body["Image"], body["Labels"]))
        return {"Id": "c1"}

    def has(self, *path, **query):
        self.asked.append((*path, query["path"]))
        return query["path"] == "/bin/sleep"

    def delete(self, *path, **_query):
        self.asked.append(("delete", *path))


def test_docker_is_asked_of_a_container_that_is_removed_again():
    """Only as far as it has to be; where nothing can be known none is made."""
    docker = Docker(Env=["PATH=/opt:/bin:/sbin"])
    assert absent_program(docker, "i", ImageProgram("sleep"), {"l": "1"}) == ""
    assert docker.asked == [
        ("containers", "create", "i", {"l": "1"}),
        ("containers", "c1", "archive", "/opt/sleep"),
        ("containers", "c1", "archive", "/bin/sleep"),
        ("delete", "containers", "c1"),
    ]
    assert absent_program(docker, "i", ImageProgram("sleeep"), {}) == (
        "image 'i' has no program 'sleeep' in /opt:/bin:/sbin"
    )
    docker = Docker(Entrypoint=["/init"])
    assert absent_program(docker, "i", ImageProgram("sleeep"), {}) == ""
    assert docker.asked == []


def test_an_engine_says_nothing_by_default():
    """One from a package, or without a cheap way to look."""
    from bench_worker.engines.base import Engine

    assert Engine.absent_program(SimpleNamespace(), None, ImageProgram("x")) == ""
