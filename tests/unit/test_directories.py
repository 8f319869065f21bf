"""Directories of this user in places where everybody can take a name first."""

import os
import stat

import pytest

from bench_common import directories
from bench_common.directories import opened, own_directories, own_directory, runtime_directories, runtime_directory
from bench_common.errors import InfrastructureError

ME = os.geteuid()
# In continuous integration it runs as whoever it is, and fails: a test that silently did not run proves nothing.
needs_root = pytest.mark.skipif(
    ME != 0 and os.environ.get("CI") != "true", reason="only root can make what belongs to another user"
)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A directory like /tmp; root's own cannot be made, so that root uses the shared one as well."""
    place = tmp_path / "tmp"
    place.mkdir()
    place.chmod(0o1777)
    (tmp_path / "run").write_text("not a directory")
    monkeypatch.setattr(directories, "RUNTIME", (tmp_path / "run", place))
    monkeypatch.setattr(directories, "_warned", set())
    return place


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_private_directory_admits_its_user_only_whatever_the_umask(place):
    """The same one each time; one that others may read in lies beside it, and neither is writable to them."""
    before = os.umask(0o077)
    try:
        private, readable = runtime_directory("sockets"), runtime_directory("leases", readable=True)
    finally:
        os.umask(before)
    assert private == place / f"weighbridge-{ME}" / "sockets" == runtime_directory("sockets")
    assert [mode(path) for path in (private, readable, readable.parent)] == [0o700, 0o755, 0o755]
    assert runtime_directories("leases")[1:] == [(readable, ME)]
    private.chmod(0o755)
    assert mode(runtime_directory("sockets")) == 0o700, "closed again"


@needs_root
def test_root_uses_a_place_that_only_root_can_write_to(tmp_path, place, monkeypatch):
    """Nobody can be there first."""
    run = tmp_path / "rw"
    run.mkdir()
    monkeypatch.setattr(directories, "RUNTIME", (run, place))
    assert runtime_directory("sockets") == run / "weighbridge" / "sockets"
    assert runtime_directories("sockets") == [(run / "weighbridge" / "sockets", 0)]


@pytest.mark.parametrize("taken", ["link", "file", "open", pytest.param("stranger", marks=needs_root)])
def test_a_name_that_somebody_took_is_named_and_avoided(place, tmp_path, taken, caplog):
    """What is there stays as it is; the user gets a directory that nobody can predict, and finds it again."""
    usual, victim = place / f"weighbridge-{ME}", tmp_path / "victim"
    victim.mkdir(mode=0o750)
    match taken:
        case "link":
            usual.symlink_to(victim)
        case "file":
            usual.touch()
        case "open":
            usual.mkdir()
            usual.chmod(0o777)
        case _:
            usual.mkdir(mode=0o755)
            os.chown(usual, 1234, 1234)
    was = mode(usual)
    path = runtime_directory("sockets")
    assert path.parent.name.startswith(f"weighbridge-{ME}-")
    assert mode(path) == 0o700
    assert path == runtime_directory("sockets")
    (warning,) = caplog.messages
    assert str(usual) in warning
    assert str(path.parent) in warning
    assert (mode(usual), mode(victim), [*victim.iterdir()]) == (was, 0o750, [])


@needs_root
def test_a_directory_below_our_own_is_checked_as_well(place):
    """Whatever lies there, nothing is written through it."""
    (place / f"weighbridge-{ME}").mkdir()
    (place / f"weighbridge-{ME}" / "sockets").symlink_to("/etc")
    with pytest.raises(InfrastructureError, match=r"sockets is a symbolic link of user root: remove it"):
        runtime_directory("sockets")


def test_a_place_where_others_can_replace_ours_is_refused(place):
    """Without the sticky bit a checked directory could be another one a moment later."""
    place.chmod(0o777)
    with pytest.raises(InfrastructureError, match=r"chmod \+t"):
        own_directory(place, "weighbridge")


def test_a_place_that_does_not_exist_is_an_error_that_names_it(tmp_path):
    """And says what to do."""
    with pytest.raises(InfrastructureError, match=rf"{tmp_path}/none/x-{ME}: No such file .* writable"):
        own_directory(tmp_path / "none", "x")


def test_only_directories_that_are_what_they_pretend_are_read(place, tmp_path):
    """A name proves nothing: owner and kind must fit, and a symbolic link below is not followed."""
    ours = own_directory(place, "weighbridge")
    (place / f"weighbridge-{ME + 1}").mkdir()
    (place / f"weighbridge-{ME}-x").symlink_to(ours)
    (place / "weighbridge-x").mkdir()
    assert own_directories(place, "weighbridge") == [(ours, ME)]
    (ours / "link").symlink_to(tmp_path)
    for path, owner, admitted in ((ours, ME, True), (ours, ME + 1, False), (ours / "link", ME, False)):
        with opened(path, owner) as descriptor:
            assert (descriptor is not None) is admitted
