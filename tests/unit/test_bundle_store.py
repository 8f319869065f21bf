"""Bundles that are made ahead: what is in them, whose they become, and that none is left."""

import json
from collections import deque

import gevent
import pytest
from deadlines import ANSWER_S

from bench_common.treatment import ContainerSettings
from bench_worker.engines import native_thread
from bench_worker.engines.base import Container
from bench_worker.engines.native_thread import NativeThread
from bench_worker.engines.oci import bundle_store as stores
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.bundle_store import BundleStore
from bench_worker.engines.oci.cgroups import Cgroups
from bench_worker.engines.oci.images import UnpackedImage
from bench_worker.engines.oci.recipe import make_recipe
from bench_worker.engines.oci.spec import ImageConfig, UnsupportedSetting

LABELS = {"weighbridge.run": "run-1", "weighbridge.worker": "w1"}


class Namespace:
    """A mount namespace without mounts, whose deferred work is done when the test wants it."""

    def __init__(self):
        self.deferred = deque()

    def defer(self, do):
        self.deferred.append(do)

    def call(self, do):
        self.program_runs()
        return do()

    def program_runs(self):
        """Do what was deferred, as when a program has started."""
        while self.deferred:
            self.deferred.popleft()()


class Bench:
    """A store below a directory of the test."""

    def __init__(self, root):
        self.namespace = Namespace()
        self.store = BundleStore("crun", self.namespace, slots=2)
        self.home = self.store.home
        image = root / "image"
        (image / "etc").mkdir(parents=True)
        (image / "etc" / "passwd").write_text("ann:x:7:8::/home/ann:/bin/sh\n")
        self.image = UnpackedImage(image, ImageConfig(user="ann", stop_signal="SIGINT"), {})

    def recipe(self, **settings):
        settings = ContainerSettings(**{"command": ("true",), **settings})
        cgroups = Cgroups(1, swap_limit=True)
        made = make_recipe(settings, self.image, cgroups, self.home, LABELS, allow_host_mounts=True)
        self.store.keep_recipe(made)
        return made

    def make(self, recipe, name, ticket=1):
        container = Container(name, ticket, recipe.settings)
        self.store.make(container, recipe)
        return container

    def remove(self, container):
        self.store.remove(container.handle, container.settings)

    def config(self, name):
        return json.loads((self.home / name / "config.json").read_text())

    def ahead(self):
        return [path for path in self.home.iterdir() if path.name.startswith("ahead-")]


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(oci_images, "STORE", tmp_path / "store")
    monkeypatch.setattr(stores, "mount_overlay", lambda *_, **__: None)
    monkeypatch.setattr(stores, "unmount", lambda _: None)
    return Bench(tmp_path)


def test_a_recipe_becomes_the_config_of_each_container(bench):
    """Name, ticket and paths are the container's own; the rest is the treatment's, the user of the image included."""
    recipe = bench.recipe(env={"A": "1"}, files={"/etc/x": "text"}, memory_bytes=1 << 26)
    config = json.loads(recipe.config("wb-1", "77"))
    directory = str(bench.home / "wb-1")
    assert config["root"]["path"] == f"{directory}/rootfs"
    assert config["linux"]["cgroupsPath"] == recipe.cgroup("wb-1") == "/weighbridge/wb-1"
    assert config["linux"]["resources"]["memory"]["limit"] == 1 << 26
    labels = {"weighbridge.run": "run-1", "weighbridge.worker": "w1", "weighbridge.ticket": "77"}
    assert labels.items() <= config["annotations"].items()
    assert config["mounts"][-1]["source"] == f"{directory}/files/0"
    assert (config["process"]["user"]["uid"], recipe.stop_signal) == (7, "SIGINT")
    assert {"A=1", "HOME=/home/ann"} <= set(config["process"]["env"])
    assert json.loads(recipe.config('a"b', ""))["linux"]["cgroupsPath"] == '/weighbridge/a"b'


def test_a_bundle_is_made_ahead_and_becomes_the_next_containers_own(bench):
    """It has the labels of its run from the start, and the ticket of the job when one has it."""
    recipe = bench.recipe(files={"/etc/x": "text"})
    bench.store.make_ahead(recipe)
    assert bench.ahead() == []  # nothing before a program runs
    bench.namespace.program_runs()
    [ahead] = bench.ahead()
    [found] = oci_images.labelled_containers("crun")
    assert (found.path, found.labels["weighbridge.run"], found.labels["weighbridge.ticket"]) == (ahead, "run-1", "")
    inode = ahead.stat().st_ino
    made = bench.make(recipe, "wb-1", 5)
    assert made.handle.directory.stat().st_ino == inode
    assert bench.ahead() == []
    assert bench.config("wb-1")["annotations"]["weighbridge.ticket"] == "5"
    assert (bench.home / "wb-1" / "files" / "0").read_text() == "text"
    assert {"rootfs", "upper", "work"} <= {path.name for path in (bench.home / "wb-1").iterdir()}


def test_each_treatment_gets_bundles_of_its_own(bench):
    """Two that take turns never get each other's, and no more than the bound are ready of either."""
    recipes = [bench.recipe(command=("echo", text)) for text in "ab"]
    for number in range(12):
        recipe = recipes[number % 2]
        made = bench.make(recipe, f"wb-{number}", number)
        assert bench.config(f"wb-{number}")["process"]["args"] == ["echo", "ab"[number % 2]]
        bench.namespace.program_runs()
        bench.remove(made)
        assert all(one.ahead <= 2 for one in recipes)
    assert all(one.ready for one in recipes)
    bench.store.release()
    assert list(bench.home.iterdir()) == []


def test_little_is_removed_later_and_much_at_once(bench):
    """A large tree would disturb the job that follows, and take the disk that it needs."""
    recipe = bench.recipe()
    little, much, printed = (bench.make(recipe, f"wb-{name}") for name in ("little", "much", "printed"))
    for one in (little, much, printed):
        (one.handle.directory / "stdout").touch()
        (one.handle.directory / "stderr").touch()
    (little.handle.directory / "upper" / "root").mkdir()
    (much.handle.directory / "upper" / "root" / "deep").mkdir(parents=True)
    (printed.handle.directory / "stdout").write_bytes(bytes(1 << 20))
    bench.remove(little)
    assert little.handle.directory.exists()
    for one in (much, printed):
        bench.remove(one)
        assert not one.handle.directory.exists()
    bench.store.finish_removals()
    assert not little.handle.directory.exists()


def test_a_name_is_claimed_once(bench):
    """Whether a bundle is ready or not; a name that is a path is refused."""
    recipe = bench.recipe()
    bench.make(recipe, "wb-1")
    with pytest.raises(FileExistsError, match="wb-1"):
        bench.make(recipe, "wb-1")
    bench.store.make_ahead(recipe)
    bench.namespace.program_runs()
    with pytest.raises(FileExistsError, match="wb-1"):
        bench.make(recipe, "wb-1")
    for name in ("a/b", "..", ""):
        with pytest.raises(UnsupportedSetting, match="no name"):
            bench.make(recipe, name)


def test_a_bundle_that_a_clean_up_took_away_is_no_error(bench):
    """The container gets one that is made for it."""
    recipe = bench.recipe()
    bench.store.make_ahead(recipe)
    bench.namespace.program_runs()
    [ahead] = bench.ahead()
    stores._delete(str(ahead))
    bench.make(recipe, "wb-1")
    assert bench.config("wb-1")["annotations"]["weighbridge.ticket"] == "1"


def test_labels_go_last_when_a_bundle_is_deleted(bench, monkeypatch):
    """A worker that is killed meanwhile leaves something that clean-up still recognises."""
    made = bench.make(bench.recipe(), "wb-1")
    monkeypatch.setattr(oci_images, "delete_directory", lambda path: (_ for _ in ()).throw(OSError(5, "I/O", path)))
    (made.handle.directory / "upper" / "kept").touch()
    with pytest.raises(OSError, match="I/O"):
        stores._delete(str(made.handle.directory))
    assert [one.path for one in oci_images.labelled_containers("crun")] == [made.handle.directory]


def test_a_native_thread_that_cannot_start_is_told_of_each_time(monkeypatch):
    """And once it can, it makes the calls."""
    start, thread = native_thread._start_native_thread, NativeThread()

    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(native_thread, "_start_native_thread", refuse)
    for ask in (thread.call, thread.post, thread.call):
        with pytest.raises(RuntimeError, match="new thread"), gevent.Timeout(ANSWER_S):
            ask(lambda: 1)
    monkeypatch.setattr(native_thread, "_start_native_thread", start)
    assert thread.call(lambda: 4) == 4
    thread.close()
