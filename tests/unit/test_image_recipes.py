"""Recipes of images: names, order and fingerprints, and what the base image's script makes of the host's apt."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from busybox_image import skip_or_fail

from bench_common.cli import read_options
from bench_common.errors import InfrastructureError, UsageError
from bench_master.cli import run_command_line
from bench_master.commands import build_images
from bench_worker.cli import build_parser as worker_parser
from bench_worker.images.base_image import SCRIPT, choose_source, host_arguments
from bench_worker.images.build import all_recipes, check_arguments, in_build_order
from bench_worker.queries import build_images as query


@pytest.fixture
def recipes(tmp_path):
    def write(**dockerfiles):
        for name, text in dockerfiles.items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "Dockerfile").write_text(text)
        return all_recipes(tmp_path)

    return write


BASE = all_recipes()["base"].folder

APT_CONFIG = """#!/bin/bash
while read -r name value; do [ "$name" != "$3" ] || printf "%s='%s'\\n" "$2" "$value"; done <"${0%/*}/settings"
"""
FAKE_CURL = """#!/bin/bash
echo "${@: -1}" >>"${0%/*}/asked"
grep -qxF -f "${0%/*}/answers" <<<"${@: -1}"
"""
PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Return a function that gives the script another host: its archives, settings of apt, and URLs that answer."""
    for name in (*PROXIES, *map(str.upper, PROXIES), "WEIGHBRIDGE_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("OS_RELEASE", str(tmp_path / "os-release"))

    def make(*archives, settings="", answers=(), os_release="ID=debian\nVERSION_CODENAME=bookworm\n"):
        programs = {"apt-get": '#!/bin/bash\ncat "${0%/*}/archives"\n', "apt-config": APT_CONFIG, "curl": FAKE_CURL}
        texts = {
            "archives": "".join(f"{archive}\n" for archive in archives),
            "settings": settings,
            "answers": "".join(f"{url}\n" for url in answers),
            "asked": "",
            "os-release": os_release,
        }
        for name, text in {**programs, **texts}.items():
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        return tmp_path

    return make


def test_the_shipped_recipes_build_on_the_base():
    """The sysbench image stands on the base image, and asking for it builds the base first."""
    assert [recipe.image for recipe in in_build_order(["sysbench"], all_recipes())] == [
        "weighbridge/base",
        "weighbridge/sysbench",
    ]


def test_parents_come_first_and_once(recipes):
    """Whatever is asked for, in whatever order, each image is built once and after what it stands on."""
    known = recipes(
        a="FROM weighbridge/b\n",
        b="# from weighbridge/a\nFROM --platform=x weighbridge/c:latest AS y\n",
        c="FROM scratch\n",
    )
    assert [recipe.name for recipe in in_build_order([], known)] == ["c", "b", "a"]
    assert [recipe.name for recipe in in_build_order(["weighbridge/a", "c"], known)] == ["c", "b", "a"]


def test_a_circle_of_recipes_is_refused(recipes):
    """Two recipes that stand on each other end in an error, not in a loop."""
    known = recipes(a="FROM weighbridge/b\n", b="FROM weighbridge/a\n")
    with pytest.raises(InfrastructureError, match="circle: a <- b <- a"):
        in_build_order(["a"], known)


def test_a_misspelt_image_gets_the_nearest_right_name():
    """The message names what there is."""
    with pytest.raises(
        UsageError, match=r"unknown image 'sysbnech' \(did you mean 'sysbench'\?\); one of: base, sysbench"
    ):
        in_build_order(["sysbnech"], {name: all_recipes()[name] for name in ("base", "sysbench")})


def test_a_fingerprint_changes_with_content_name_and_parent(recipes, tmp_path):
    """What an image is made from shows in the fingerprint, and nothing else does."""
    recipe = recipes(a="FROM scratch\n")["a"]
    first = recipe.fingerprint("parent")
    assert recipe.fingerprint("parent") == first
    assert recipe.fingerprint("other") != first
    (tmp_path / "a" / "extra").write_text("x")
    second = recipe.fingerprint("parent")
    assert second != first
    (tmp_path / "a" / "extra").rename(tmp_path / "a" / "extrb")
    assert recipe.fingerprint("parent") not in {first, second}


def test_a_build_argument_changes_the_fingerprint():
    """The same folder for another distribution is another image."""
    recipe = all_recipes()["blogbench"]
    plain, one, other = (recipe.fingerprint("", arguments) for arguments in (None, {"D": "a"}, {"D": "b"}))
    assert len({plain, one, other}) == 3
    assert recipe.fingerprint("", {}) == plain


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["blogbench", "--build-arg", "DISTRIBUTION"], "--build-arg DISTRIBUTION: expected NAME=VALUE"),
        (["blogbench", "--build-arg", "a b=c"], "--build-arg a b=c: expected NAME=VALUE"),
        (["--build-arg", "A=b"], "--build-arg applies to one image: name it"),
        (["mbw", "sysbench", "--build-arg", "A=b"], "--build-arg applies to one image: name it"),
    ],
)
def test_build_arguments_that_mean_nothing_are_refused(capsys, words, message):
    """Before any engine is asked."""
    assert run_command_line(["build-images", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_switches_of_a_build_reach_the_worker(monkeypatch):
    """``build-images`` asks the worker's program with the ``--image`` options, which its parser accepts."""
    asked = []
    monkeypatch.setattr(build_images, "query_worker", lambda *flags, **_: asked.extend(flags) or [])
    words = ["blogbench", "--build-arg", "A=b", "--force", "--dry-run"]
    assert run_command_line(["-q", "build-images", *words]) == 0
    options = read_options(query.Options, worker_parser().parse_args(asked))
    assert (options.images, options.image_args) == (("blogbench",), ("A=b",))
    assert (options.image_force, options.image_dry_run, options.image_quiet) == (True, True, True)


def release(mirror, suite="bookworm"):
    return f"{mirror}/dists/{suite}/Release"


def test_credentials_never_leave_the_host(host):
    """A mirror's user and password are not part of what may be written into an image."""
    mirror = "https://mirror.example:8443/x/debian"
    host("https://user:s3cret@mirror.example:8443/x/debian/ trixie", answers=[release(mirror)])
    source = choose_source(BASE)
    assert source.text.split()[1] == mirror
    assert "s3cret" not in source.text


def test_only_mirrors_that_a_build_can_reach_are_named(host):
    """A CD, a local folder and another distribution's mirror are no mirrors for a build."""
    folder = host("cdrom:[x]/debian a", "file:/srv/debian a", "http://m/ubuntu/ a", "http://m/xdebian/ a")
    with pytest.raises(InfrastructureError, match=r"tried http://deb\.debian\.org/debian\)"):
        choose_source(BASE)
    assert (folder / "asked").read_text().split() == [release("http://deb.debian.org/debian")]


def test_apt_reads_both_styles_of_sources_itself(tmp_path, host, monkeypatch):
    """One-line entries and stanzas; disabled ones and sources are left out."""
    if shutil.which("apt-get") is None:
        skip_or_fail("a host without apt")
    folder = host(answers=[release("http://m/debian")])
    (folder / "apt-get").unlink()
    (folder / "sources.list.d").mkdir()
    (folder / "sources.list").write_text("deb-src http://s/debian a main\n# deb http://o/debian a main\n")
    (folder / "sources.list.d/c.sources").write_text(
        "Types: deb\nURIs: http://d/debian\nSuites: a\nComponents: main\nEnabled: no\n\n"
        "Types: deb\nURIs: http://m/debian\nSuites: a bookworm-security\nComponents: main\n"
    )
    (folder / "apt.conf").write_text(f'Dir::Etc "{tmp_path}";\nDir::State "{tmp_path}";\n')
    monkeypatch.setenv("APT_CONFIG", str(folder / "apt.conf"))
    assert choose_source(BASE).text.split()[1] == "http://m/debian"
    assert (folder / "asked").read_text().split() == [release("http://m/debian")]


def test_apts_proxy_goes_before_the_environments(host, monkeypatch):
    """A proxy that only apt knows is found, DIRECT switches one off, and either case of a variable counts."""
    monkeypatch.setenv("http_proxy", "http://env:1")
    monkeypatch.setenv("HTTPS_PROXY", "http://env:2")
    monkeypatch.setenv("NO_PROXY", "localhost")
    host(settings="Acquire::http::Proxy http://apt:3128/\nAcquire::https::Proxy DIRECT\n")
    assert host_arguments(BASE) == {"http_proxy": "http://apt:3128/", "no_proxy": "localhost", "APT_OPTIONS": ""}
    host()
    assert host_arguments(BASE)["https_proxy"] == "http://env:2"


def test_only_harmless_switches_are_handed_on(host):
    """What decides whether packages can be fetched is handed on; paths, secrets and shell syntax are not."""
    host(settings="Acquire::Check-Date false\nAcquire::Retries 3 $(id)\nDir::Etc /etc/apt\n")
    assert host_arguments(BASE) == {"APT_OPTIONS": "-oAcquire::Check-Date=false"}


def test_a_host_without_apt_is_no_error(host):
    """A system that has never heard of apt takes the public mirror, and its builds get no switches."""
    folder = host(answers=[release("http://deb.debian.org/debian")])
    for name in ("apt-get", "apt-config"):
        (folder / name).write_text("#!/bin/sh\nexit 127\n")
    assert choose_source(BASE).text.split()[1] == "http://deb.debian.org/debian"
    assert host_arguments(BASE) == {"APT_OPTIONS": ""}


def test_the_hosts_own_debian_mirror_comes_first(host):
    """Behind an internal mirror nothing else is asked, and its security archive is used where the host uses it."""
    folder = host(
        "http://m/debian/ trixie",
        "http://m/debian-security bookworm-security",
        answers=[release("http://m/debian"), release("http://deb.debian.org/debian")],
    )
    lines = choose_source(BASE).text.splitlines()
    assert (folder / "asked").read_text().split() == ["http://m/debian/dists/bookworm/Release"]
    assert lines[1:] == ["deb http://m/debian bookworm main", "deb http://m/debian-security bookworm-security main"]


def test_security_updates_of_another_suite_are_left_out(host):
    """A host of another suite says nothing of where bookworm's updates are."""
    host("http://m/debian trixie", "http://m/debian-security trixie-security", answers=[release("http://m/debian")])
    assert choose_source(BASE).text.splitlines()[1:] == ["deb http://m/debian bookworm main"]


def test_the_public_mirror_is_the_second_choice(host):
    """A host mirror that does not carry the suite is passed over."""
    host("http://m/debian trixie", answers=[release("http://deb.debian.org/debian")])
    assert str(choose_source(BASE)) == "debootstrap minbase bookworm from http://deb.debian.org/debian"


def test_an_ubuntu_host_without_debian_uses_its_own_suite(host):
    """Where only the host's own mirror answers, the base is the host's own suite, with universe."""
    os_release = 'ID=ubuntu\nVERSION_CODENAME="noble"\n'
    host("http://m/ubuntu/ noble", answers=[release("http://m/ubuntu", "noble")], os_release=os_release)
    first, *lines = choose_source(BASE).text.splitlines()
    assert first.split()[:3] == ["noble", "http://m/ubuntu", "main,universe"]
    assert "ubuntu" in first.split()[3]
    assert lines == ["deb http://m/ubuntu noble main universe", "deb http://m/ubuntu noble-updates main universe"]


def test_a_named_mirror_is_the_only_one_tried(host, monkeypatch):
    """A user who names a mirror wants that one, and learns when it does not answer; only http and https are asked."""
    monkeypatch.setenv("WEIGHBRIDGE_MIRROR", "http://n/debian/")
    host("http://m/debian bookworm", answers=[release("http://n/debian"), release("http://m/debian")])
    assert choose_source(BASE).text.split()[1] == "http://n/debian"
    for mirror in ("http://o/debian", "file:///etc", "nonsense"):
        monkeypatch.setenv("WEIGHBRIDGE_MIRROR", mirror)
        with pytest.raises(InfrastructureError, match=rf"tried {mirror}\).*WEIGHBRIDGE_MIRROR="):
            choose_source(BASE)


def test_without_root_the_message_names_the_way_out(tmp_path, host):
    """debootstrap needs root; the message says what to do."""
    folder = host()
    (folder / "id").write_text("#!/bin/sh\necho 1000\n")
    (folder / "id").chmod(0o755)
    done = subprocess.run(
        ["bash", BASE / SCRIPT, "make", tmp_path / "x.tar.gz"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "sudo bench-master build-images" in done.stderr


def test_an_argument_that_no_dockerfile_takes_is_refused():
    """The builder would leave it out, and make what was not asked for; proxies every Dockerfile takes."""
    recipes = in_build_order(["blogbench"], all_recipes())
    check_arguments(["DISTRIBUTION", "PACKAGE", "https_proxy"], recipes)
    with pytest.raises(UsageError, match=r"--build-arg DISTRIBUTON: .*did you mean 'DISTRIBUTION'"):
        check_arguments(["DISTRIBUTON"], recipes)


def test_what_cannot_be_had_everywhere_says_what_to_do_without():
    """In its Dockerfile, for who builds it in vain."""
    recipes = all_recipes()
    assert "blogload" in recipes["blogbench"].on_request
    assert [name for name, recipe in recipes.items() if recipe.on_request] == ["blogbench", "worker"]
