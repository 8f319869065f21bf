"""The parts of the fleet: wheels, host keys, the choice of a Python, arguments, outcomes, rows."""

import base64
import csv
import errno
import hashlib
import os
import re
import subprocess
import sys
import threading
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import gevent
import paramiko
import pytest
from deadlines import ANSWER_S, END_S
from documents import ROOT
from msgspec.structs import replace

from bench_common import keys
from bench_common.cli import read_options
from bench_common.errors import InfrastructureError, UsageError
from bench_common.keys import KeyProvisioner, parse_allow_list, read_worker_key
from bench_features.fleet import wheels
from bench_features.fleet.commands import start
from bench_features.fleet.commands.list import build_rows, format_clock
from bench_features.fleet.inventory import parse_inventory
from bench_features.fleet.known_hosts import KnownHosts
from bench_features.fleet.launchers import base
from bench_features.fleet.launchers.base import (
    FAILED,
    STARTED,
    HostProgress,
    LaunchSpec,
    WorkerOutcome,
    collect_outcomes,
    run_parallel,
)
from bench_features.fleet.launchers.ssh import SshLauncher
from bench_features.fleet.options import launch_spec
from bench_features.fleet.progress import (
    LOG_SILENCE_S,
    FleetProgress,
    HostActivity,
    describe_activities,
    exit_code_for,
    print_outcomes,
    stop_all,
)
from bench_features.fleet.remote_host import _select_python
from bench_features.fleet.ssh import HostError
from bench_features.fleet.wheels import PythonPlatform, WheelBundle, Wheelhouse, required_distributions
from bench_master.cli import build_parser, run_command_line
from bench_master.run.discovery import DiscoveredWorker

SMALL = "zope.event"
"""A small package that every installation has, because gevent needs it."""


def hosts_of(text):
    """Return the hosts of an inventory."""
    return parse_inventory(text, "hosts.yaml", ("local", "ssh")).hosts


# -- wheels -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """Let the installation be of ourselves and one small package, with pip as its installer."""
    chosen = [distribution(SMALL), distribution("weighbridge")]
    monkeypatch.setattr(wheels, "required_distributions", lambda: chosen)
    monkeypatch.setattr(wheels, "_bundled_pip", lambda: wheels.Wheel(Path("pip-1-py3-none-any.whl"), "0", 1))
    return chosen


def test_packages_that_extend_the_program_in_any_way_go_to_the_hosts():
    """Each group of entry points counts; traits belong to an engine of the same package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = {group.removeprefix("weighbridge.") for group in project["entry-points"]}
    assert set(wheels.ENTRY_POINT_GROUPS) == groups - {"engine_traits"}


@pytest.mark.parametrize("place", ["ensurepip/_bundled", "python-wheels"])
def test_pip_comes_from_where_this_python_has_its_wheel(monkeypatch, tmp_path, place):
    """Beside ensurepip, or in the directory for wheels that a distribution named when it built Python."""
    (tmp_path / "ensurepip/_bundled").mkdir(parents=True)
    (tmp_path / "python-wheels").mkdir()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "ensurepip")])
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda _name: spec)
    own = {"WHEEL_PKG_DIR": str(tmp_path / "python-wheels")}
    monkeypatch.setattr(wheels.sysconfig, "get_config_var", own.get)
    with pytest.raises(InfrastructureError, match="no pip to install on hosts with"):
        wheels._bundled_pip()
    (tmp_path / place / "pip-23.0.1-py3-none-any.whl").write_bytes(b"a wheel")
    assert wheels._bundled_pip().path == tmp_path / place / "pip-23.0.1-py3-none-any.whl"


def test_a_worker_gets_all_our_requirements():
    """Direct and indirect requirements, pip and Weighbridge; nothing that only tests need."""
    names = {dist.name.lower() for dist in required_distributions()}
    assert {"weighbridge", "pip", "numpy", "greenlet", "cffi"} <= names
    assert not {"pytest", "mypy", "ruff"} & names


def test_a_wheel_is_repacked_from_installed_files(small, tmp_path):
    """Each file is in RECORD with its digest, and the file name is valid for pip."""
    bundle = Wheelhouse(tmp_path).bundle_for(PythonPlatform.current())
    names = [wheel.name.split("-")[0] for wheel in bundle.wheels]
    assert sorted(names) == ["pip", "weighbridge", "zope_event"]
    for wheel in bundle.wheels:
        if wheel.name.startswith("pip-"):
            continue
        assert wheel.sha256 == hashlib.sha256(wheel.path.read_bytes()).hexdigest()
        with zipfile.ZipFile(wheel.path) as archive:
            (record,) = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
            rows = list(csv.reader(archive.read(record).decode().splitlines()))
            assert {row[0] for row in rows} == set(archive.namelist())
            for name, digest, size in rows:
                content = archive.read(name)
                encoded = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                assert name == record or (digest, size) == (f"sha256={encoded}", str(len(content)))
            assert any(name.endswith(".dist-info/METADATA") for name in archive.namelist())
            assert not any("__pycache__" in name for name in archive.namelist())


@pytest.mark.parametrize("harm", ["altered", "cut", "no digest"])
def test_a_wheel_of_the_cache_that_was_altered_is_made_again(small, tmp_path, harm):
    """No host gets what somebody, or a full disk, made of it: it is packed anew from what is installed here."""
    before = Wheelhouse(tmp_path).bundle_for(PythonPlatform.current())
    (victim,) = (wheel.path for wheel in before.wheels if wheel.name.startswith("zope"))
    if harm == "altered":
        victim.write_bytes(victim.read_bytes()[:-1] + b"x")
    elif harm == "cut":
        victim.write_bytes(victim.read_bytes()[:100])
    else:
        (digest,) = victim.parent.glob("*.sha256")
        digest.unlink()
    after = Wheelhouse(tmp_path).bundle_for(PythonPlatform.current())
    assert after == before
    assert hashlib.sha256(victim.read_bytes()).hexdigest() in {wheel.sha256 for wheel in before.wheels}


def test_another_python_gets_its_wheels_from_a_directory(tmp_path):
    """pip chooses those that fit; without a directory, or one that lacks them, the error says what to do."""
    target = PythonPlatform("cpython-312-x86_64-linux-gnu", "3.12", "x86_64", "glibc 2.36")
    missing = [distribution(SMALL)]
    with pytest.raises(InfrastructureError, match=r"Python 3\.12 .* not binary-compatible .* --wheelhouse"):
        Wheelhouse(tmp_path / "cache")._choose(missing, target)
    house = tmp_path / "house"
    house.mkdir()
    with pytest.raises(InfrastructureError, match=r"house lacks some: .*zope.* --wheelhouse"):
        Wheelhouse(tmp_path / "cache", house)._choose(missing, target)
    metadata = f"Metadata-Version: 2.1\nName: {SMALL}\nVersion: {missing[0].version}\n"
    for tag in ("cp311-cp311-manylinux_2_17_x86_64", "cp312-cp312-manylinux_2_17_x86_64"):
        stem = f"zope_event-{missing[0].version}"
        with zipfile.ZipFile(house / f"{stem}-{tag}.whl", "w") as archive:
            archive.writestr(f"{stem}.dist-info/METADATA", metadata)
            archive.writestr(f"{stem}.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
            archive.writestr(f"{stem}.dist-info/RECORD", "")
    (chosen,) = Wheelhouse(tmp_path / "cache", house)._choose(missing, target)
    assert chosen.path == house / f"{stem}-{tag}.whl"


def test_a_host_with_an_index_gets_this_project_alone(tmp_path, monkeypatch):
    """Less than 5 MB; the rest as exact requirements. What no index has is sent: a package from a folder, too."""
    here = PythonPlatform.current()
    bundle = Wheelhouse(tmp_path).project_bundle_for(here)
    assert [wheel.name.split("-")[0] for wheel in bundle.wheels] == ["weighbridge"]
    assert sum(wheel.size_bytes for wheel in bundle.wheels) < 5_000_000
    wanted = {f"{dist.name}=={dist.version}" for dist in required_distributions()}
    assert wanted - set(bundle.pins) == {pin for pin in wanted if pin.startswith(("weighbridge==", "pip=="))}
    assert set(bundle.pins) <= wanted
    assert Wheelhouse(tmp_path).project_bundle_for(here).identity == bundle.identity
    assert Wheelhouse(tmp_path).project_bundle_for(replace(here, soabi="x")).identity != bundle.identity
    assert Wheelhouse(tmp_path, tmp_path).project_bundle_for(here) is None

    class FromFolder:
        name, version, files = "my-engines", "1", ()

        def read_text(self, name):
            return "{}" if name == "direct_url.json" else None

    monkeypatch.setattr(wheels, "required_distributions", lambda: [FromFolder()])
    with pytest.raises(InfrastructureError, match=r"package my-engines .* not installed from a wheel"):
        Wheelhouse(tmp_path).project_bundle_for(here)


class Remote:
    """A host with or without a pip, which may fail, and with installations."""

    python, python_platform = "/usr/bin/python3", PythonPlatform.current()

    def __init__(self, *, pip=True, fails=False, installed=(), stands_for=()):
        self.has_pip, self.fails, self.installed, self.stands_for = pip, fails, installed, stands_for
        self.got = []

    def has(self, bundle):
        return bundle.identity in self.installed

    def has_whole(self, bundle):
        return bundle.identity in self.stands_for

    def upload_bytes(self, bundle):
        return 1_000_000 if bundle.pins else 37_000_000

    def install(self, bundle, *, stands_for="", on_sent):
        on_sent(self.upload_bytes(bundle))
        self.got.append((bundle.identity, stands_for))
        if bundle.pins and self.fails:
            raise HostError("No matching distribution found for numpy==9")


@pytest.mark.parametrize(
    ("settings", "remote", "got", "told"),
    [
        ("", {}, [("small", "")], ["1.0 MB to send; the rest comes from the index of its own pip"]),
        ("", {"pip": False}, [("whole", "small")], ["37.0 MB to send; everything that it needs"]),
        ("index: false", {}, [("whole", "")], ["37.0 MB to send"]),
        ("", {"installed": ["small"]}, [], []),
        ("", {"installed": ["whole"], "stands_for": ["small"]}, [], []),
        ("", {"installed": ["older"], "stands_for": ["small"]}, [("whole", "small")], ["37.0 MB to send"]),
        (
            "",
            {"fails": True},
            [("small", ""), ("whole", "small")],
            ["1.0 MB to send", "cannot install the rest, so everything is sent: No matching distribution", "37.0 MB"],
        ),
    ],
)
def test_what_is_sent_to_a_host(tmp_path, monkeypatch, settings, remote, got, told):
    """This project where the host's pip gets the rest, else everything, which is said; a failure is not repeated."""
    (host,) = hosts_of(f"hosts: {{a: {{{settings}}}}}")
    launcher = SshLauncher(spec_with_keys_in(tmp_path))
    wheelhouse = launcher.launch_spec.wheelhouse
    monkeypatch.setattr(wheelhouse, "project_bundle_for", lambda _: WheelBundle("small", (), ("numpy==9",)))
    monkeypatch.setattr(wheelhouse, "bundle_for", lambda _: WheelBundle("whole", ()))
    lines = []

    class Progress(HostProgress):
        def __call__(self, host, doing):
            lines.append(doing)

    there = Remote(**remote)
    identity = launcher._ensure_installed(host, there, Progress())
    assert there.got == got
    assert identity == (got[-1][0] if got else there.installed[0])
    assert lines[0] == "packing this installation"
    assert [part for part in told if not any(part in line for line in lines)] == []
    assert len(lines) == 1 + len(told)


def test_what_hosts_are_at_is_told_with_bytes_and_time_to_go(capsys):
    """For each of a few hosts, in one line for many; nothing about those that are through."""
    sending = HostActivity("installing (x)", 10.0, 10_000_000, 40_000_000)
    assert sending.text(12.0) == "10.0 of 40.0 MB sent, 6 s to go"
    assert HostActivity("x", 10.0, 0, 40_000_000).text(12.0) == "0.0 of 40.0 MB sent"
    assert (
        HostActivity("x", 10.0, 5_000_000, 5_000_000).text(19.0) == "5.0 MB sent, installing with pip, for 9 s in all"
    )
    assert describe_activities({"a": HostActivity("connecting", 9.0)}, 12.0) == [("a", "connecting, for 3 s")]
    many = {f"h{number}": sending for number in range(4)} | {"a": HostActivity("connecting", 9.0)}
    summary = "5 hosts at work; installing on 4: 40.0 of 160.0 MB sent, 6 s to go; connecting: 1"
    assert describe_activities(many, 12.0) == [("", summary)]
    progress = FleetProgress(parse_inventory("hosts: {a: , b: }", "h", ("ssh",)), quiet=False)
    with progress.watching():
        progress("a", "connecting")
        progress("b", "connecting")
        progress.ended("b")
        progress._told_at -= LOG_SILENCE_S
        with gevent.Timeout(ANSWER_S):
            while monotonic() - progress._told_at >= LOG_SILENCE_S:
                gevent.sleep(0.002)
    *told, last = [line.split(" s  ")[1] for line in capsys.readouterr().err.splitlines()]
    assert told == ["a  connecting", "b  connecting"]
    assert re.fullmatch(r"a  connecting, for \d+ s", last)


def test_hosts_are_handled_side_by_side(monkeypatch):
    """As many at once as the width allows, and each is told when it is through."""
    monkeypatch.setattr(base, "MAX_PARALLEL", 3)
    together, at_once, most, ended = threading.Barrier(3), [], [], []

    class Progress(HostProgress):
        def ended(self, host):
            ended.append(host)

    def action(host):
        at_once.append(host.name)
        most.append(len(at_once))
        together.wait(ANSWER_S)
        at_once.remove(host.name)
        return host.name

    hosts = hosts_of("hosts: {a: , b: , c: , d: , e: , f: }")
    assert run_parallel(hosts, action, Progress()) == {name: name for name in "abcdef"}
    assert max(most) == 3
    assert sorted(ended) == list("abcdef")


def test_a_package_in_editable_mode_is_refused(tmp_path, monkeypatch):
    """The message names it and says what to do."""

    class Editable:
        name = "my-engines"
        version = "1"
        files = ()

        def read_text(self, name):
            return {
                "WHEEL": "Tag: py3-none-any",
                "RECORD": "",
                "direct_url.json": '{"dir_info": {"editable": true}}',
            }[name]

    monkeypatch.setattr(wheels, "required_distributions", lambda: [Editable()])
    with pytest.raises(InfrastructureError, match=r"package my-engines .* not in editable mode"):
        Wheelhouse(tmp_path).bundle_for(PythonPlatform.current())


def test_which_wheels_fit_another_python():
    """Pure ones any; compiled ones the same interpreter and a C library that is no older than they need."""
    here = PythonPlatform("cpython-311-x86_64-linux-gnu", "3.11", "x86_64", "glibc 2.36")
    kinds = {
        "older": PythonPlatform(here.soabi, "3.11", "x86_64", "glibc 2.17"),
        "newer": PythonPlatform(here.soabi, "3.11", "x86_64", "glibc 2.40"),
        "python": PythonPlatform("cpython-312-x86_64-linux-gnu", "3.12", "x86_64", "glibc 2.36"),
        "musl": PythonPlatform(here.soabi, "3.11", "x86_64", ""),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PythonPlatform, "current", classmethod(lambda cls: here))
        tag = "cp311-cp311-manylinux_2_28_x86_64"
        assert {name for name, kind in kinds.items() if kind.accepts(tag)} == {"newer"}
        assert all(kind.accepts("py3-none-any") for kind in kinds.values())
        assert here.accepts("cp311-cp311-linux_x86_64")
    assert kinds["older"].platforms[0] == "manylinux_2_17_x86_64"
    assert kinds["musl"].platforms[0].startswith("musllinux")


# -- host keys ----------------------------------------------------------------------------------------------------


@pytest.fixture
def key():
    return paramiko.ECDSAKey.generate()


def known(path, line):
    """Return what a client knows of a host after reading a file of one line."""
    path.write_text(f"# a remark\n\n{line}\nnonsense\n")
    return KnownHosts(path).client().get_host_keys().lookup("10.0.0.1")


def test_known_hosts_is_read_as_ssh_writes_it(tmp_path, key):
    """Plain and hashed names; malformed lines are skipped."""
    path = tmp_path / "known_hosts"
    text = f"{key.get_name()} {key.get_base64()}"
    assert known(path, f"10.0.0.1,blade {text}")[key.get_name()] == key
    hashed = paramiko.HostKeys.hash_host("10.0.0.1")
    assert known(path, f"{hashed} {text}")[key.get_name()] == key
    assert known(path, f"10.0.0.2 {text}") is None
    assert known(path, f"@cert-authority 10.0.0.1 {text}") is None


def test_a_revoked_key_is_no_longer_known(tmp_path, key):
    """Not even where it is listed, nor with --accept-new."""
    path = tmp_path / "known_hosts"
    text = f"{key.get_name()} {key.get_base64()}"
    assert known(path, f"10.0.0.1 {text}\n@revoked * {text}") is None
    with pytest.raises(InfrastructureError, match="@revoked"):
        KnownHosts(path, accept_new=True).check_unknown_host("10.0.0.1", key)


def test_a_new_host_key_is_added_on_request_only(tmp_path, key):
    """It is appended to the file, and nothing else changes."""
    path = tmp_path / "ssh" / "known_hosts"
    with pytest.raises(InfrastructureError, match=f"not in .*{re.escape(key.fingerprint)}.*--accept-new"):
        KnownHosts(path).check_unknown_host("10.0.0.1", key)
    assert not path.exists()
    hosts = KnownHosts(path, accept_new=True)
    hosts.check_unknown_host("10.0.0.1", key)
    assert KnownHosts(path).client().get_host_keys().lookup("10.0.0.1")[key.get_name()] == key
    assert len(hosts.added_hosts) == 1
    assert path.stat().st_mode & 0o777 == 0o600


# -- a host's Python ----------------------------------------------------------------------------------------------


def test_the_first_suitable_python_is_selected():
    """One that is too old or has no venv is skipped."""
    found = [("3.9", "venv", "/usr/bin/python3"), ("3.12", "-", "/a"), ("3.11", "venv", "/b"), ("3.13", "venv", "/c")]
    assert _select_python(found, None, "") == "/b"


@pytest.mark.parametrize(
    ("found", "named", "complaint", "why"),
    [
        (
            [("3.9", "venv", "/usr/bin/python3")],
            None,
            "",
            "Python 3.11 or newer not found (available: /usr/bin/python3 (3.9))",
        ),
        ([], None, "", "not found (available: none)"),
        ([], "/opt/py", "sh: no such thing", "'python: /opt/py' not found (available: none) (sh: no such thing)"),
        ([("3.12", "-", "/usr/bin/python3")], None, "", "/usr/bin/python3 has no module venv"),
    ],
)
def test_a_missing_python_is_reported(found, named, complaint, why):
    """With the Pythons that were found, and what to do."""
    with pytest.raises(HostError) as caught:
        _select_python(found, named, complaint)
    assert why in str(caught.value)
    assert "python:" in str(caught.value)


# -- keys and arguments -------------------------------------------------------------------------------------------


def spec_with_keys_in(tmp_path, **fields):
    """Return a launch spec whose keys are in a directory of their own."""
    return LaunchSpec(
        KeyProvisioner(tmp_path / "keys"), Wheelhouse(tmp_path), KnownHosts(tmp_path / "known"), **fields
    )


def test_a_worker_gets_the_settings_of_the_inventory(tmp_path):
    """And no secret."""
    (host,) = hosts_of(
        "hosts: {b: {environment: control, concurrency: 3, labels: {rack: '7'}, allow_host_mounts: true, "
        "services_address: 10.0.1.1}}"
    )
    words = spec_with_keys_in(tmp_path).arguments(host, "10.0.0.1")
    assert words == [
        *("--zmq-host", "10.0.0.1", "--zmq-control-port", "13577", "-c", "3"),
        *("--environment", "control", "--label", "rack=7", "--address", "10.0.1.1", "--allow-host-mounts"),
        "--allow-native",
    ]
    (host,) = hosts_of("hosts: {b: {allow_cold: true, allow_host_settings: [thp, vm.swappiness]}}")
    words = spec_with_keys_in(tmp_path).arguments(host, "10.0.0.1")
    assert "--allow-cold" in words
    allowed = words[words.index("--allow-host-settings") + 1]
    assert allowed == "sys/kernel/mm/transparent_hugepage/enabled,proc/sys/vm/swappiness"
    with pytest.raises(UsageError, match=r":\d+:\d+: unknown host setting 'vm'"):
        hosts_of("hosts: {b: {allow_host_settings: [vm]}}")
    (host,) = hosts_of("hosts: {b: {allow_native: false}}")
    assert "--allow-native" not in spec_with_keys_in(tmp_path).arguments(host, "10.0.0.1")


def test_the_command_line_says_where_the_master_and_the_wheels_are(tmp_path):
    """``--master-address`` is what every host connects to, ``--wheelhouse`` replaces the package index."""
    inventory = parse_inventory("hosts: {b: }", "hosts.yaml", ("local", "ssh"))
    flags = ["--master-address", "[fd00::5]", "--wheelhouse", str(tmp_path / "wheels"), "--master-timeout", "90s"]
    words = ["fleet", "start", "-i", os.devnull, "--key-dir", str(tmp_path), *flags]
    options = read_options(start.Options, build_parser(words[:2]).parse_args(words))
    spec = launch_spec(options.fleet, inventory, start=options.start, network=options.network)
    assert spec.master_for(inventory.hosts[0]) == "fd00::5"
    assert spec.wheelhouse._find_links == tmp_path / "wheels"
    assert (spec.master_timeout_s, spec.tunnel) == (90.0, False)


def test_a_key_is_created_once_and_delivered_unchanged(tmp_path):
    """A worker that is on the list without a key file, or whose file is of another master, is refused with advice."""
    provisioner = spec_with_keys_in(tmp_path).provisioner
    path = provisioner.key_file_to_deliver("b")
    assert provisioner.key_file_to_deliver("b") == path
    assert read_worker_key(path).master_public == provisioner.master()[0].public
    content = path.read_text()
    path.unlink()
    with pytest.raises(UsageError, match=r"its key was moved away.*--revoke b"):
        provisioner.key_file_to_deliver("b")
    path.write_text(content)
    path.chmod(0o600)
    provisioner.master_path.unlink()
    with pytest.raises(UsageError, match=r"another master.*--revoke b"):
        provisioner.key_file_to_deliver("b")


def test_a_dry_run_shows_the_way_and_touches_nothing(tmp_path, capsys):
    """Each host with its route, what its workers call themselves, how many jobs they take, and its launcher."""
    path = tmp_path / "hosts.yaml"
    path.write_text(
        "defaults: {user: me}\nhosts:\n  gate: {address: 192.0.2.1, port: 2222}\n"
        "  b: {jump: gate, environment: control, workers: 2, concurrency: 8, tunnel: true}\n"
    )
    assert run_command_line(["fleet", "start", "-i", str(path), "--dry-run", "--ssh-config", "none"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "gate\tme@192.0.2.1:2222\tdetected\t1 x 64\tas seen from host\tssh",
        "b\tme@192.0.2.1:2222 -> me@b:22\tcontrol\t2 x 8\ttunnel\tssh",
    ]


def test_one_machine_with_two_names_causes_a_note(tmp_path, capsys):
    """Its figures would look like those of two hosts; behind a jump host an address is another."""
    path = tmp_path / "hosts.yaml"
    path.write_text(
        "hosts:\n  a: {address: 10.0.0.1}\n  b: {address: 10.0.0.1, environment: vm}\n"
        "  c: {address: 10.0.0.1, port: 2222}\n  d: {address: 10.0.0.1, jump: c}\n"
    )
    command = ["fleet", "start", "-i", str(path), "--dry-run", "--ssh-config", "none"]
    assert run_command_line(command) == 0
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith(f"note: {path}:3: a and b are the same host, 10.0.0.1:22; for several")
    assert run_command_line(["-q", *command]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("flags", "jobs"), [((), 1), (("--expect", "2"), 3), (("--noop",), 2)])
def test_a_dry_run_does_not_count_who_lends_a_service(tmp_path, capsys, flags, jobs):
    """Of the inventory's two one lends; in a run that does nothing nobody does."""
    path = tmp_path / "hosts.yaml"
    path.write_text("hosts: {a: {environment: far}, b: {environment: near}}\n")
    scenario = tmp_path / "s.yaml"
    scenario.write_text("{name: s, engines: [native], job: {workload: ab, services: {webbench: {placement: near}}}}")
    argv = ["run-scenario", "-f", str(scenario), "-i", str(path), "--dry-run", "--ssh-config", "none", *flags]
    assert run_command_line(argv) == 0
    assert re.search(rf"^Size .* {jobs} jobs?$", capsys.readouterr().out, re.MULTILINE)


# -- many hosts ---------------------------------------------------------------------------------------------------


def test_an_error_on_one_host_does_not_stop_the_others():
    """Each error is the outcome of its host's workers."""
    hosts = hosts_of("hosts: {a: {workers: 2}, b: , c: , d: , e: }")

    def action(host):
        if host.name == "a":
            raise HostError("no way in")
        if host.name == "b":
            raise UsageError("no key")
        if host.name == "c":
            raise RuntimeError("oh")
        if host.name == "e":
            raise OSError(errno.EROFS, "Read-only file system", "/home/keys")
        return [WorkerOutcome("d", "d", STARTED)]

    found = collect_outcomes(hosts, run_parallel(hosts, action))
    assert [(each.worker, each.state, each.detail) for each in found] == [
        ("a-1", FAILED, "no way in"),
        ("a-2", FAILED, "no way in"),
        ("b", FAILED, "no key"),
        ("c", FAILED, "RuntimeError: oh"),
        ("d", STARTED, ""),
        ("e", FAILED, "/home/keys on this machine: Read-only file system"),
    ]


def test_the_exit_code_and_the_table(capsys):
    """Each failed host is counted once, however many workers it has."""
    outcomes = [
        WorkerOutcome("a", "a-1", FAILED, "why\tnot"),
        WorkerOutcome("a", "a-2", FAILED, "why"),
        WorkerOutcome("b", "b", STARTED),
    ]
    print_outcomes(outcomes)
    assert exit_code_for(outcomes) == 3
    assert exit_code_for(outcomes[2:]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "HOST\tWORKER\tSTATE\tDETAIL",
        "a\ta-1\tfailed\twhy not",
        "a\ta-2\tfailed\twhy",
        "b\tb\tstarted\t",
    ]
    assert said.err == "bench-master: 1 host failed; the reasons are in the table\n"


def test_only_newly_started_workers_are_stopped():
    """Workers that ran before go on."""

    class Fleet:
        inventory = parse_inventory("hosts: {a: , b: }", "h", ("ssh",))

        def stop(self, hosts):
            return [WorkerOutcome(host.name, host.name, "ended") for host in hosts]

    outcomes = [
        WorkerOutcome("a", "a", STARTED),
        WorkerOutcome("b", "b", "already running"),
        WorkerOutcome("c", "c", FAILED, "x"),
    ]
    assert [each.state for each in stop_all(Fleet(), outcomes)] == ["ended", "already running", "failed"]


# -- who is there -------------------------------------------------------------------------------------------------


def present(name, **info):
    """Return a worker that asked to join."""
    return DiscoveredWorker(b"peer", name, "control", 4, {"host": f"{name}.lab", "version": "0.1.0", **info})


def test_a_row_for_who_came_and_who_should_have():
    """With load, clock and engines as told; nothing is invented for who was not heard."""
    engines = {"docker": {"usable": True, "version": "27.0"}, "podman": {"usable": False}}
    clock = {"offset_ns": -2_500_000, "uncertainty_ns": 100_000}
    came = present("a", load=0.5, clock=clock, engines=engines, boot_id="there")
    rows = build_rows([came], hosts_of("hosts: {a: , b: {environment: bare-metal}}"), "here")
    assert [row.cells()[:7] for row in rows] == [
        ("a", "a.lab", "control", "4", "0.1.0", "0.50", "+2.500 ms, +-0.100"),
        ("b", "b", "bare-metal", "-", "-", "-", "-"),
    ]
    document = rows[0].document()
    assert document["clock"] == {"offset_ns": 2_500_000, "uncertainty_ns": 100_000}
    assert document["engine_versions"] == {"docker": "27.0"}
    assert (rows[1].document()["heard"], rows[1].document()["clock"]) == (None, None)


def test_a_clock_that_was_not_compared_is_not_guessed():
    """A hello without a comparison has none."""
    assert present("a").clock("here") is None
    assert format_clock(None) == "?"


def test_one_boot_is_one_clock():
    """There is nothing to compare."""
    assert present("a", boot_id="here").clock("here") == (0, 0)
    assert format_clock((0, 0)) == "same host"


def test_several_masters_make_the_keys_of_one_inventory_at_once(tmp_path):
    """Each finds the key and its line, or neither: a key without its line would pass for one that was revoked."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom bench_common.keys import KeyProvisioner\n"
        "for number in range(12):\n    KeyProvisioner(Path(sys.argv[1])).worker(f'here-{number}')\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program, tmp_path / "keys"], stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    ended = [(process.communicate(timeout=END_S)[1], process.returncode) for process in started]
    assert ended == [("", 0)] * 4
    assert len(parse_allow_list((tmp_path / "keys/authorized_workers").read_text("ascii"), "list")) == 12


def test_a_process_that_never_leaves_the_keys_is_named(tmp_path, monkeypatch):
    """Nobody waits for it for ever."""
    monkeypatch.setattr(keys, "LOCK_TIMEOUT_S", 0.05)
    held, other = KeyProvisioner(tmp_path / "keys"), KeyProvisioner(tmp_path / "keys")
    with held._alone(), pytest.raises(UsageError, match="another process has been making keys here"):
        other.master()
    other.master()
