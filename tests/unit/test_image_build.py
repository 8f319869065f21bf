"""What is built, what is skipped and what is told, against a store that lives in memory."""

from __future__ import annotations

import fcntl
import hashlib
import itertools
from dataclasses import dataclass, field

import pytest

from bench_common.errors import InfrastructureError
from bench_worker.images import base_image, build
from bench_worker.images.base_image import BaseSource, build_lock, cache_folder, is_intact, tarball_path
from bench_worker.images.build import IMAGE_LABEL, RECIPE_LABEL, Builder, all_recipes, in_build_order

BASE = all_recipes()["base"].folder
SOURCE = BaseSource("bookworm http://m/debian main /k.gpg minbase\ndeb http://m/debian bookworm main")


@dataclass
class Image:
    identity: str
    labels: dict
    size_bytes: int = 5_000_000


@dataclass
class Store:
    """Images by name; `registry` says what `obtainable` answers, `broken` whether a pull fails."""

    registry: str | None = None
    broken: bool = False
    images: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)
    ids: itertools.count = field(default_factory=itertools.count)

    def inspect(self, image):
        return self.images.get(image)

    def find_source(self, image):
        return self.registry

    def build(self, folder, image, *, labels, arguments, progress):
        if self.broken and image.endswith("/base"):
            raise InfrastructureError("429 too many requests")
        self.calls.append(("build", image, dict(arguments)))
        progress("Step 1/1 : FROM x")
        progress("a thousand lines of apt")
        self.images[image] = Image(f"id{next(self.ids)}", dict(labels))

    def import_tarball(self, tarball, image, *, labels, progress):
        self.calls.append(("import", image, tarball.name))
        self.images[image] = Image(f"id{next(self.ids)}", dict(labels))

    def discard(self, identity):
        self.calls.append(("discard", identity))


@pytest.fixture
def tarballs(monkeypatch, tmp_path):
    """Stand in for debootstrap: a tarball that is there already."""
    monkeypatch.setattr(build, "base_tarball", lambda *_: (tmp_path / "base.tar.gz", True))
    monkeypatch.setattr(build, "choose_source", lambda _: SOURCE)


@pytest.fixture
def bench(tmp_path, tarballs):
    def make(store, *, verbose=False):
        said = []
        host = {"http_proxy": "http://p", "APT_OPTIONS": "-oAcquire::Check-Date=false"}
        return Builder(store, host, tmp_path / "cache", said.append, verbose), said

    return make


def recipes():
    return in_build_order(["sysbench"], {name: all_recipes()[name] for name in ("base", "sysbench")})


def actions(builder, **options):
    return [
        (built.image.removeprefix("weighbridge/"), built.action) for built in builder.build_all(recipes(), **options)
    ]


def test_without_a_registry_the_base_is_imported_and_the_rest_is_built_on_it(bench):
    """The base comes from a tarball, sysbench from its Dockerfile with the host's proxy and switches."""
    store = Store()
    builder, said = bench(store)
    assert actions(builder) == [("base", "built"), ("sysbench", "built")]
    assert store.calls == [
        ("import", "weighbridge/base", "base.tar.gz"),
        ("build", "weighbridge/sysbench", {"http_proxy": "http://p", "APT_OPTIONS": "-oAcquire::Check-Date=false"}),
    ]
    assert any("no reachable registry has debian:bookworm-slim" in line for line in said)
    assert any("debootstrap minbase bookworm from http://m/debian" in line for line in said)


def test_with_a_registry_the_base_is_its_image(bench):
    """Where the image is to be had, debootstrap is not used, and the proxy is for apt alone."""
    store = Store(registry="registry")
    assert actions(bench(store)[0]) == [("base", "built"), ("sysbench", "built")]
    assert [call[:2] for call in store.calls] == [("build", "weighbridge/base"), ("build", "weighbridge/sysbench")]


def test_a_registry_that_breaks_its_word_is_no_obstacle(bench):
    """A pull that fails after the registry said yes leads to debootstrap, and both are told."""
    store = Store(registry="registry", broken=True)
    builder, said = bench(store)
    assert actions(builder)[0] == ("base", "built")
    assert store.calls[0][:2] == ("import", "weighbridge/base")
    assert any("429 too many requests" in line for line in said)


class Refusing(Store):
    """One in which no build succeeds."""

    def build(self, folder, image, *, labels, arguments, progress):
        raise InfrastructureError(f"{image} cannot be built: nobody has it")


@pytest.mark.parametrize(("name", "advice"), [("blogbench", "or use the workload blogload"), ("sysbench", "")])
def test_a_build_that_fails_says_what_to_do_where_that_is_known(bench, name, advice):
    """What cannot be had everywhere has its way out in its Dockerfile."""
    builder, _ = bench(Refusing())
    with pytest.raises(InfrastructureError, match=f"weighbridge/{name} cannot be built: nobody has it") as caught:
        list(builder.build_all(in_build_order([name], all_recipes())))
    assert str(caught.value).endswith(advice or "nobody has it")


def test_what_is_up_to_date_is_left_alone(bench):
    """A second run builds nothing."""
    store = Store()
    builder, _ = bench(store)
    actions(builder)
    store.calls.clear()
    assert actions(builder) == [("base", "cached"), ("sysbench", "cached")]
    assert store.calls == []


def test_a_changed_base_changes_what_stands_on_it(bench):
    """A rebuilt base makes sysbench out of date, and what both replace is discarded."""
    store = Store()
    builder, _ = bench(store)
    actions(builder)
    before = {name: image.identity for name, image in store.images.items()}
    store.calls.clear()
    assert actions(builder, forced=["base"]) == [("base", "built"), ("sysbench", "built")]
    assert [call[1] for call in store.calls if call[0] == "discard"] == [
        before["weighbridge/base"],
        before["weighbridge/sysbench"],
    ]


def test_force_is_for_what_was_named(bench):
    """Forcing sysbench leaves an up-to-date base alone."""
    store = Store()
    builder, _ = bench(store)
    actions(builder)
    assert actions(builder, forced=["sysbench"]) == [("base", "cached"), ("sysbench", "built")]


def test_an_image_of_somebody_else_is_replaced_but_never_discarded(bench):
    """An image of that name without our label loses its name, not its life."""
    store = Store(images={"weighbridge/base": Image("foreign", {})})
    builder, _ = bench(store)
    assert actions(builder)[0] == ("base", "built")
    assert ("discard", "foreign") not in store.calls


def test_a_dry_run_touches_nothing_and_foresees_what_follows(bench, tmp_path):
    """It says what would be built, including what would be out of date by then."""
    store = Store()
    builder, _ = bench(store)
    assert actions(builder, dry_run=True) == [("base", "would build"), ("sysbench", "would build")]
    assert store.calls == []
    assert not (tmp_path / "cache").exists()
    actions(builder)
    store.images["weighbridge/base"].labels[RECIPE_LABEL] = "old"
    assert actions(builder, dry_run=True) == [("base", "would build"), ("sysbench", "would build")]


def test_images_are_marked_as_ours_and_not_as_a_runs(bench):
    """The label that clean-up of runs looks for must not be on an image that outlives runs."""
    store = Store()
    actions(bench(store)[0])
    for image in store.images.values():
        assert image.labels[IMAGE_LABEL] == "1"
        assert "weighbridge.run" not in image.labels


def test_the_cache_is_where_the_xdg_convention_says(tmp_path, monkeypatch):
    """XDG_CACHE_HOME counts when it is absolute; else ~/.cache."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(cache_folder({"XDG_CACHE_HOME": "/x"})) == "/x/weighbridge"
    for environment in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}):
        assert cache_folder(environment) == tmp_path / ".cache" / "weighbridge"


def test_a_tarball_is_used_only_when_its_sum_is_right(tmp_path):
    """A tarball that is missing, unsummed, cut or altered is not whole."""
    tarball = tarball_path(tmp_path, BASE, SOURCE)
    summed = tarball.with_name(f"{tarball.name}.sha256")
    assert not is_intact(tarball)
    tarball.write_bytes(b"content")
    assert not is_intact(tarball)
    summed.write_text(hashlib.sha256(b"content").hexdigest() + "\n")
    assert is_intact(tarball)
    tarball.write_bytes(b"conten")
    assert not is_intact(tarball)
    summed.write_bytes(b"\xff\xfe")
    assert not is_intact(tarball)


def test_another_source_is_another_tarball(tmp_path):
    """The name holds all that went into it."""
    other = BaseSource(SOURCE.text.replace("http://m/", "http://n/"))
    (tmp_path / base_image.SCRIPT).write_text("another script")
    named = {tarball_path(tmp_path, *what) for what in ((BASE, SOURCE), (BASE, other), (tmp_path, SOURCE))}
    assert len(named) == 3


def test_a_second_builder_is_kept_out_and_gives_up_in_time(tmp_path):
    """While another process builds, nothing is built twice; a builder that hangs is named."""
    said = []
    with (tmp_path / "build.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with (
            pytest.raises(InfrastructureError, match=r"has held .*build\.lock for \d+ s"),
            build_lock(tmp_path, said.append, wait_s=0),
        ):
            pytest.fail("two builders at once")
    with build_lock(tmp_path, said.append):
        pass


def recipe_with(folder, script):
    (folder / base_image.SCRIPT).write_text(script)
    return folder


def test_a_script_that_fails_is_quoted(tmp_path):
    """The last lines of what it printed are in the message, with its exit code."""
    said = []
    recipe = recipe_with(tmp_path, "echo 'E: no space left'; exit 4")
    with pytest.raises(InfrastructureError, match=r"(?s)exit code 4; last lines:.*no space left"):
        base_image.base_tarball(tmp_path, recipe, SOURCE, said.append)
    assert said == ["E: no space left"]


def test_a_script_that_hangs_is_ended_with_what_it_started(tmp_path, monkeypatch):
    """The limit ends the whole session, so that no orphan holds the pipe."""
    monkeypatch.setattr(base_image, "QUERY_TIMEOUT_S", 0.05)
    recipe = recipe_with(tmp_path, "sleep 60 & sleep 60")
    with pytest.raises(InfrastructureError, match=r"did not end within 0\.05 s"):
        base_image.host_arguments(recipe)
