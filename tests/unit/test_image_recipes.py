"""Recipes of images: names, order, fingerprints, and what the host's apt says, all from text and folders."""

from __future__ import annotations

import pytest

from bench_common.errors import InfrastructureError, UsageError
from bench_master.cli import run_command_line
from bench_worker.images.base_system import (
    AptArchive,
    HostApt,
    apt_switches,
    choose_source,
    parse_apt_config,
    parse_archives,
    proxy_arguments,
    read_host,
    read_settings,
    without_credentials,
)
from bench_worker.images.build import all_recipes, check_arguments, in_build_order


@pytest.fixture
def recipes(tmp_path):
    def write(**dockerfiles):
        for name, text in dockerfiles.items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "Dockerfile").write_text(text)
        return all_recipes(tmp_path)

    return write


def host(*archives, distribution="debian", codename="bookworm"):
    return HostApt(distribution, codename, tuple(archives), {}, ())


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
        (["--build-arg", "A=b"], "--build-arg is for one image: name it"),
        (["mbw", "sysbench", "--build-arg", "A=b"], "--build-arg is for one image: name it"),
    ],
)
def test_build_arguments_that_mean_nothing_are_refused(capsys, words, message):
    """Before any engine is asked."""
    assert run_command_line(["build-images", *words]) == 2
    assert message in capsys.readouterr().err


def test_both_styles_of_sources_are_read():
    """One-line entries and stanzas give the same archives; sources and disabled entries are left out."""
    assert parse_archives(
        "# deb http://old/debian buster main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://a/debian bookworm main contrib\n"
        "deb-src http://a/debian bookworm main\n",
        deb822=False,
    ) == [AptArchive("http://a/debian", ("bookworm",))]
    assert parse_archives(
        "Types: deb deb-src\n# a remark\nURIs: http://a/debian\n http://b/debian\nSuites: bookworm bookworm-updates\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n x: y\n\n"
        "Types: deb\nURIs: http://c/debian\nSuites: sid\nEnabled: no\n\nTypes: deb-src\nURIs: http://d/\nSuites: x\n",
        deb822=True,
    ) == [
        AptArchive("http://a/debian", ("bookworm", "bookworm-updates")),
        AptArchive("http://b/debian", ("bookworm", "bookworm-updates")),
    ]


def test_credentials_never_leave_the_host():
    """A mirror's user and password are not part of what may be written into an image."""
    assert (
        without_credentials("https://user:s3cret@mirror.example:8443/debian/") == "https://mirror.example:8443/debian"
    )
    assert host(AptArchive("http://u:p@m/x/debian", ("a",))).mirror_of("/debian") == "http://m/x/debian"


def test_only_mirrors_that_a_build_can_reach_are_named():
    """A CD, a local folder and another distribution's mirror are no mirrors for a build."""
    apt = host(
        AptArchive("cdrom:[x]/debian", ("a",)),
        AptArchive("file:/srv/debian", ("a",)),
        AptArchive("http://m/ubuntu/", ("a",)),
    )
    assert apt.mirror_of("/debian") is None
    assert apt.mirror_of("/ubuntu") == "http://m/ubuntu"


def test_apts_proxy_goes_before_the_environments():
    """A proxy that only apt knows is found, DIRECT switches one off, and either case of a variable counts."""
    settings = parse_apt_config(
        'Acquire::http::Proxy "http://apt:3128/";\nAcquire::https::Proxy "DIRECT";\nDir "/";\n'
    )
    environment = {"http_proxy": "http://env:1", "HTTPS_PROXY": "http://env:2", "NO_PROXY": "localhost"}
    assert proxy_arguments(settings, environment) == {"http_proxy": "http://apt:3128/", "no_proxy": "localhost"}
    assert proxy_arguments({}, environment)["https_proxy"] == "http://env:2"


def test_only_harmless_switches_are_handed_on():
    """What decides whether packages can be fetched is handed on; paths, secrets and shell syntax are not."""
    settings = parse_apt_config(
        'Acquire::Check-Date "false";\nAcquire::Retries "3 $(id)";\nDir::Etc "/etc/apt";\nAcquire::http::Proxy "http://p";\n'
    )
    assert apt_switches(settings) == ("-oAcquire::Check-Date=false",)


def test_a_host_without_apt_is_no_error(tmp_path):
    """A system that has never heard of apt gives an empty list of archives."""
    assert read_host(tmp_path).archives == ()


def test_a_hosts_files_are_found(tmp_path):
    """sources.list and both kinds of files beside it are read; files that apt ignores are ignored."""
    folder = tmp_path / "etc/apt/sources.list.d"
    folder.mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text('ID=ubuntu\nVERSION_CODENAME="noble"\n')
    (tmp_path / "etc/apt/sources.list").write_text("deb http://one/ubuntu noble main\n")
    (folder / "b.list.disabled").write_text("deb http://no/ubuntu noble main\n")
    (folder / "c.sources").write_text("Types: deb\nURIs: http://two/ubuntu\nSuites: noble\n")
    apt = read_host(tmp_path)
    assert (apt.distribution, apt.codename) == ("ubuntu", "noble")
    assert [archive.uri for archive in apt.archives] == ["http://one/ubuntu", "http://two/ubuntu"]


SETTINGS = read_settings(all_recipes()["base"].folder)


def test_the_hosts_own_debian_mirror_comes_first():
    """Behind an internal mirror nothing else is asked, and its security archive is used where the host uses it."""
    asked = []
    apt = host(
        AptArchive("http://m/debian", ("trixie",)), AptArchive("http://m/debian-security", ("bookworm-security",))
    )
    source = choose_source(SETTINGS, apt, override=None, answers=lambda url: not asked.append(url))
    assert asked == ["http://m/debian/dists/bookworm/Release"]
    assert source.sources_list == (
        "deb http://m/debian bookworm main\ndeb http://m/debian-security bookworm-security main\n"
    )


def test_security_updates_of_another_suite_are_left_out():
    """A host of another suite says nothing of where bookworm's updates are."""
    apt = host(
        AptArchive("http://m/debian", ("trixie",)), AptArchive("http://m/debian-security", ("trixie-security",))
    )
    assert choose_source(SETTINGS, apt, override=None, answers=lambda url: True).extra_lines == ()


def test_the_public_mirror_is_the_second_choice():
    """A host mirror that does not carry the suite is passed over."""
    apt = host(AptArchive("http://m/debian", ("trixie",)))
    source = choose_source(SETTINGS, apt, override=None, answers=lambda url: "deb.debian.org" in url)
    assert source.mirror == "http://deb.debian.org/debian"


def test_an_ubuntu_host_without_debian_uses_its_own_suite():
    """Where only the host's own mirror answers, the base is the host's own suite, with universe."""
    apt = host(AptArchive("http://m/ubuntu/", ("noble",)), distribution="ubuntu", codename="noble")
    source = choose_source(SETTINGS, apt, override=None, answers=lambda url: url.startswith("http://m/ubuntu/"))
    assert (source.suite, source.mirror, source.components) == ("noble", "http://m/ubuntu", ("main", "universe"))
    assert "ubuntu" in source.keyring


def test_a_named_mirror_is_the_only_one_tried():
    """Who names a mirror wants that one, and is told when it does not answer."""
    apt = host(AptArchive("http://m/debian", ("bookworm",)))
    assert (
        choose_source(SETTINGS, apt, override="http://n/debian/", answers=lambda url: True).mirror
        == "http://n/debian"
    )
    with pytest.raises(InfrastructureError, match=r"tried http://n/debian\).*WEIGHBRIDGE_MIRROR="):
        choose_source(SETTINGS, apt, override="http://n/debian", answers=lambda url: False)


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
    assert [name for name, recipe in recipes.items() if recipe.on_request] == ["blogbench"]
