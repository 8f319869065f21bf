"""ssh_config: what an inventory leaves open of how a host is reached, found as `ssh` would find it."""

import pytest

from bench_common.errors import UsageError
from bench_features.fleet.hosts import Login
from bench_features.fleet.inventory import parse_inventory
from bench_features.fleet.ssh_config import SshConfig
from bench_master.cli import run_command_line


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home directory with two keys."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    for name in ("one", "two"):
        (tmp_path / ".ssh" / name).write_text("a key")
    return tmp_path


@pytest.fixture
def config(home):
    """Write a file and return what it says."""

    def write(text, name="config"):
        (home / ".ssh" / name).write_text(text)
        return SshConfig(home / ".ssh" / name)

    return write


def login_of(config, hosts, name):
    """Return the login of one host of an inventory, after the file."""
    inventory = config.apply_to(parse_inventory(hosts, "hosts.yaml", ("ssh", "slurm")))
    return next(host.login for host in inventory.hosts if host.name == name)


def way(login):
    """Return the way to a host as `ssh -J` would have it, the nearest to us first."""
    steps = []
    while login is not None:
        steps.append(f"{login.user or ''}@{login.address}:{login.port}")
        login = login.jump
    return " ".join(reversed(steps))


FILE = """
Host blade-*
    HostName %h.lab
    Port 2222
    IdentityFile ~/.ssh/one
    IdentityFile ~/.ssh/missing
    ProxyJump door@gate:2200,inner
Host inner
    HostName 10.0.0.9
    Port 23
Host *
    User everybody
    IdentityFile ~/.ssh/two
"""


def test_what_an_inventory_leaves_open_the_file_says(config, home):
    """Name, port, user, keys that are there, and the way; the jump hosts too; and it is told what that was."""
    login = login_of(config(FILE), "hosts: {blade-1: }", "blade-1")
    assert way(login) == "door@gate:2200 everybody@10.0.0.9:23 everybody@blade-1.lab:2222"
    assert login.keys == (home / ".ssh/one", home / ".ssh/two")
    assert login.source == (
        f"HostName, Port, User, IdentityFile and ProxyJump from {home}/.ssh/config, as for 'ssh blade-1'"
    )
    assert login.jump.jump.source.startswith("IdentityFile from ")


def test_the_word_of_an_inventory_counts_first(config):
    """Each of its values, those of its defaults too; an IP address is final."""
    hosts = """
defaults: {user: me}
hosts:
  blade-1: {address: 10.0.0.1, port: 22, key: /k, jump: outer}
  blade-2: {address: blade-9}
"""
    read = config(
        "Host 10.* blade-*\n HostName 10.9.9.9\n Port 5\n User you\n IdentityFile ~/.ssh/one\nProxyJump x\n"
    )
    login = login_of(read, hosts, "blade-1")
    assert way(login) == "me@outer:22 me@10.0.0.1:22"
    assert [str(key) for key in login.keys] == ["/k"]
    assert login.source == ""
    # An address that is a name is what one would type: the file may know another for it.
    assert way(login_of(read, hosts, "blade-2")) == "@x:22 me@10.9.9.9:5"


def test_a_jump_host_of_the_inventory_is_looked_up_too(config):
    """And one that is written out; what they say themselves counts first."""
    read = config("Host gate\n HostName gate.lab\n Port 2200\n ProxyJump outer\nHost outer\n User door\n")
    hosts = "hosts: {gate: {port: 22}, a: {jump: gate}, b: {jump: 'x@outer'}}"
    assert way(login_of(read, hosts, "a")) == "door@outer:22 @gate.lab:22 @a:22"
    assert way(login_of(read, hosts, "b")) == "x@outer:22 @b:22"


def test_what_holds_for_all_hosts_does_not_send_the_one_on_the_way_through_itself(config):
    """`ProxyJump gate` for everybody leaves gate reached directly; `none` and no file at all leave everybody so."""
    read = config("Host quick\n ProxyJump none\nHost *\n ProxyJump gate\n")
    hosts = "hosts: {gate: , a: , quick: }"
    assert [way(login_of(read, hosts, name)) for name in ("gate", "a", "quick")] == [
        "@gate:22",
        "@gate:22 @a:22",
        "@quick:22",
    ]
    assert way(login_of(config(""), hosts, "a")) == "@a:22"


def test_other_launchers_address_no_ssh_server(config):
    """The address of a node of a cluster stays what it is."""
    read = config("Host *\n HostName x\n User y\n")
    assert login_of(read, "hosts: {n1: {launcher: slurm, master: m}}", "n1") == Login("n1")


def test_files_that_are_included_stand_in_their_place(config, home):
    """The first word counts, theirs too; what comes after them is for all hosts again; patterns name many files."""
    (home / ".ssh" / "more").mkdir()
    (home / ".ssh" / "more" / "a.conf").write_text("Host a\n  Port 1\n")
    (home / ".ssh" / "more" / "b.conf").write_text("Host b\n  Port 2\n")
    read = config("# Include nothing\nInclude more/*.conf missing\nUser all\nHost *\n  Port 9\n")
    assert [way(read.complete(Login(name))) for name in "abc"] == ["all@a:1", "all@b:2", "all@c:9"]


def test_a_proxy_command_is_not_run_and_told(config):
    """Should the host not be reached, its error says that there is another way which was not taken."""
    read = config("Host a\n ProxyCommand nc %h %p\nHost b\n ProxyCommand none\n")
    assert "the ProxyCommand in " in read.complete(Login("a")).source
    assert read.complete(Login("a", jump=Login("gate"))).source == ""
    assert read.complete(Login("b")).source == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Host a\n Port x\n", "config: Port x of 'a': expected a whole number from 1 to 65535"),
        ("Host a\n ProxyJump b:0\n", "config: Port 0 of 'b': expected"),
        ("Host a\n ProxyJump b c\n", "config: ProxyJump b c of 'a': expected [user@]host[:port]"),
        ("Host a\n ProxyJump b\nHost b\n ProxyJump a\n", "config: jump hosts form a loop: a -> b -> a"),
        ("Match host a exec true\n User b\n", "config:1: 'Match exec' is not supported"),
        ("\nHost a\n Include more\n", "config:3: an Include for some hosts only is not supported"),
        ("Include config\n", "config: Include is nested more than 16 deep"),
        ("Host 'a\n", "config: Unparsable host 'a: expected an ssh_config"),
        ("CanonicalizeHostname yes\n", "config: cannot be applied to 'a': KeyError"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_its_place(config, text, why):
    """Never passed over in silence: the host would be reached by another way than its user's."""
    with pytest.raises(UsageError) as caught:
        config(text).complete(Login("a"))
    assert why in str(caught.value)


def test_which_file_is_read(config, home):
    """The one that is named, else the user's own where there is one and nobody else can write to it; or none."""
    assert SshConfig.load(None) is None
    config("User me\n")
    assert SshConfig.load(None).complete(Login("a")).user == "me"
    assert SshConfig.load(type(home)("none")) is None
    with pytest.raises(UsageError, match=r"no-such: No such file.*--ssh-config"):
        SshConfig.load(home / "no-such")
    (home / ".ssh/config").chmod(0o664)
    with pytest.raises(UsageError, match="others can write to it"):
        SshConfig.load(None)
    assert SshConfig.load(home / ".ssh/config").complete(Login("a")).user == "me"


def test_a_dry_run_shows_the_way_that_would_be_taken(config, home, capsys):
    """With the file, and as the inventory alone has it."""
    config(FILE)
    path = home / "hosts.yaml"
    path.write_text("hosts: {blade-1: }\n")
    command = ["fleet", "start", "-i", str(path), "--dry-run"]
    for flags, route in (
        ([], "door@gate:2200 -> everybody@10.0.0.9:23 -> everybody@blade-1.lab:2222"),
        (["--ssh-config", "none"], "blade-1:22"),
    ):
        assert run_command_line([*command, *flags]) == 0
        assert capsys.readouterr().out.splitlines()[1].split("\t")[1] == route
