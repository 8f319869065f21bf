"""Monitors of Podman whose containers Podman has forgotten, by their command lines."""

import pytest

from bench_worker.engines.docker.podman_monitors import MONITOR, find_forgotten, parse_monitor

STORE = "/var/lib/containers/storage"
ID = "e08e307e273a4da4aecdefc1e7b964aca757b7610402e0e8827d331550108202"
RUN = "af5bf78756cf"


def argv(name=f"wb-{RUN}-0-0", identity=ID, store=STORE):
    """Return the command line of a monitor as Podman 4.3 writes it."""
    bundle = f"{store}/overlay-containers/{identity}/userdata"
    exit_command = [word for each in ("-n", "other", "container", "cleanup") for word in ("--exit-command-arg", each)]
    return [
        *("/usr/bin/conmon", "--api-version", "1", "-c", identity, "-u", identity, "-r", "/usr/sbin/runc"),
        *("-b", bundle, "-p", f"/run/containers/{identity}/pidfile", "-n", name, "--exit-dir", "/run/libpod/exits"),
        *("--runtime-arg", "--log-format=json", "--exit-command", "/usr/bin/podman", *exit_command),
    ]


def test_a_monitor_is_what_its_command_line_says():
    """The arguments of what it starts are none of its own."""
    monitor = parse_monitor(7, argv(), 3.0)
    assert (monitor.pid, monitor.identity, monitor.name, monitor.age_s) == (7, ID, f"wb-{RUN}-0-0", 3.0)
    assert (monitor.runtime, monitor.bundle) == ("/usr/sbin/runc", f"{STORE}/overlay-containers/{ID}/userdata")


@pytest.mark.parametrize("words", [[], ["conmon"], ["sleep", *argv()[1:]], argv()[:9]])
def test_other_command_lines_are_no_monitors(words):
    """Nor is one that lacks what would name its container."""
    assert parse_monitor(7, words) is None


@pytest.mark.parametrize(
    ("name", "run"),
    [
        (f"wb-{RUN}-12-1", RUN),
        (f"wb-kept-{RUN}-12-0", f"kept-{RUN}"),
        (f"wb-{RUN}-2-0a1b2c3d-12-0", f"{RUN}-2-0a1b2c3d"),
        (f"wb-{RUN}-12-0-db", RUN),
        ("wb-nginx-1-2", ""),
        (f"my-wb-{RUN}-12-1", ""),
    ],
)
def test_the_run_is_in_the_name_of_the_container(name, run):
    """Of a resumed run its part; containers that only begin alike are nobody's."""
    assert parse_monitor(7, argv(name)).run_id == run


def test_only_what_a_service_would_know_if_it_were_there_is_forgotten():
    """Not what it knows, nor what another store has, nor anybody else's container."""
    forgotten, known, elsewhere, foreign = (
        parse_monitor(1, argv()),
        parse_monitor(2, argv(identity="2" * 64)),
        parse_monitor(3, argv(identity="3" * 64, store="/home/eve/storage")),
        parse_monitor(4, argv("web", identity="4" * 64)),
    )
    monitors = (forgotten, known, elsewhere, foreign)
    (left,) = find_forgotten("podman", monitors, {"2" * 64}, STORE, None)
    assert (left.what, left.identity, left.run_id) == (MONITOR, ID, RUN)
    assert find_forgotten("podman", monitors, {"2" * 64}, f"{STORE}/", RUN) == [left]
    assert find_forgotten("podman", monitors, {"2" * 64}, STORE, "000000000000") == []
