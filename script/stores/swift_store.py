"""Runs a small OpenStack Swift on loopback, for `script/store`: proxy, account, container, object, and memcached.

One process imports Swift once, makes the rings in memory and forks the four servers: starting four programs and
calling swift-ring-builder twelve times takes many times as long. There is one device and one replica, no
background daemon, and no root; the settings, logs and objects are in one folder.
"""

from __future__ import annotations

import ctypes
import logging
import os
import pwd
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from processes import (
    HOST,
    check_port,
    fail,
    identity,
    is_alive,
    last_words,
    print_variables,
    read_state,
    remove_files,
    running_port,
    stop,
    write_state,
)

MODULES = {
    "object": "swift.obj.server",
    "container": "swift.container.server",
    "account": "swift.account.server",
    "proxy": "swift.proxy.server",
}
OFFSETS = {"proxy": 0, "object": 1, "container": 2, "account": 3, "memcached": 4}
"""The port of each server, after that of the store."""
USER, PASSWORD = "test:tester", "testing"
REGION = "us-east-1"
READY_TIMEOUT_S = 120.0
PR_SET_NAME = 15
START = "script/store start"

SWIFT_CONF = """\
[swift-hash]
swift_hash_path_prefix = weigh
swift_hash_path_suffix = bridge
[storage-policy:0]
name = gold
default = yes
[storage-policy:1]
name = silver
"""

COMMON_CONF = """\
[DEFAULT]
swift_dir = {home}/etc
devices = {home}/srv
mount_check = false
user = {user}
bind_ip = {host}
bind_port = {port}
workers = 0
log_level = WARNING
fallocate_reserve = 0
disable_fallocate = true
"""

BACKEND_CONF = """\
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""

FILTERS = ("catch_errors", "gatekeeper", "healthcheck", "listing_formats", "bulk", "copy", "slo", "dlo", "symlink")
PROXY_CONF = """\
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck proxy-logging cache listing_formats bulk s3api tempauth copy slo dlo \
versioned_writes symlink proxy-logging proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
conn_timeout = 5
allow_account_management = true
[filter:proxy-logging]
use = egg:swift#proxy_logging
access_log_level = INFO
[filter:tempauth]
use = egg:swift#tempauth
token_life = {token_life}
user_test_tester = testing .admin
user_test2_tester2 = testing2 .admin
user_test_reader = reading
user_test_guarded = never-to-be-seen-7f3a .admin
[filter:s3api]
use = egg:swift#s3api
location = {region}
s3_acl = false
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_object_versioning = true
[filter:cache]
use = egg:swift#memcache
memcache_servers = {host}:{memcached_port}
# Who gets none of two connections within a second counts as not logged in: that is too few for many users.
memcache_max_connections = 100
connect_timeout = 5
pool_timeout = 10
io_timeout = 10
"""


def main(argv: list[str]) -> None:
    """Do what `script/store` was asked for."""
    match argv:
        case ["start", home, port, token_life]:
            start(Path(home), int(port), int(token_life))
        case ["stop", home]:
            stop(Path(home))
        case ["wipe", home]:
            stop(Path(home))
            remove_files(Path(home), ("srv", "etc", "log", "state.json"))
        case ["status", home]:
            status(Path(home))
        case ["env", home]:
            print_variables(variables(running_port(Path(home), "proxy", START)))
        case _:
            sys.exit(__doc__)


def start(home: Path, port: int, token_life: int) -> None:
    """Start the store, unless it runs; print what to type next."""
    state = read_state(home)
    if state and is_alive(state["processes"].get("proxy")):
        print_next(home, state["port"], "runs already")
        return
    stop(home)
    for name in ("etc", "log", "srv/d1"):
        (home / name).mkdir(parents=True, exist_ok=True)
    check_attributes(home)
    for name, offset in OFFSETS.items():
        check_port(port + offset, name)
    began = time.monotonic()
    write_settings(home, port, token_life)
    processes: dict[str, list[int]] = {}
    start_memcached(home, port, processes)
    write_state(home, port, processes)
    read_policies(home)
    write_rings(home, port)
    for name in MODULES:
        processes[name] = identity(start_server(name, home))
        write_state(home, port, processes)
    wait_ready(home, port, processes)
    print_next(home, port, f"is ready after {time.monotonic() - began:.1f} s")


def check_attributes(home: Path) -> None:
    """End where Swift could not store the properties of its objects."""
    try:
        os.setxattr(home / "srv", "user.weighbridge", b"1")
    except OSError as error:
        fail(f"{home}: this file system has no extended attributes ({error.strerror}); name a folder on another one "
             "with WEIGHBRIDGE_STORE=FOLDER")  # fmt: skip


def write_settings(home: Path, port: int, token_life: int) -> None:
    """Write the settings of all servers."""
    user = pwd.getpwuid(os.getuid()).pw_name
    (home / "etc/swift.conf").write_text(SWIFT_CONF)
    for name in MODULES:
        text = COMMON_CONF.format(home=home, user=user, host=HOST, port=port + OFFSETS[name])
        if name == "proxy":
            text += PROXY_CONF.format(
                host=HOST, memcached_port=port + OFFSETS["memcached"], token_life=token_life, region=REGION
            )
            text += "".join(f"[filter:{each}]\nuse = egg:swift#{each}\n" for each in FILTERS)
        else:
            text += BACKEND_CONF.format(name=name)
        (home / f"etc/{name}-server.conf").write_text(text)


def read_policies(home: Path) -> None:
    """Have Swift read its storage policies: it did when it was imported, from another folder."""
    from swift.common import storage_policy, utils

    utils.set_swift_dir(str(home / "etc"))
    storage_policy.reload_storage_policies()


def write_rings(home: Path, port: int) -> None:
    """Write the rings: where the account, the containers and the objects of each policy are."""
    from swift.common.ring import RingBuilder

    for ring, server in (
        ("account", "account"),
        ("container", "container"),
        ("object", "object"),
        ("object-1", "object"),
    ):
        builder = RingBuilder(6, 1, 0)
        place = {"ip": HOST, "port": port + OFFSETS[server]}
        backend = {"replication_ip": HOST, "replication_port": place["port"]}
        builder.add_dev({"region": 1, "zone": 1, "device": "d1", "weight": 1, "meta": "", **place, **backend})
        builder.rebalance(seed="1")
        builder.get_ring().save(str(home / f"etc/{ring}.ring.gz"))


def start_memcached(home: Path, port: int, processes: dict[str, list[int]]) -> None:
    """Start memcached, which holds the logins."""
    command = [os.environ["WEIGHBRIDGE_MEMCACHED"], "-l", HOST, "-p", str(port + OFFSETS["memcached"]), "-m", "32"]
    if os.getuid() == 0:
        command += ["-u", "root"]
    libraries = os.environ.get("WEIGHBRIDGE_MEMCACHED_LIBRARIES")
    environment = {**os.environ, **({"LD_LIBRARY_PATH": libraries} if libraries else {})}
    with (home / "log/memcached.log").open("w") as log:
        started = subprocess.Popen(  # noqa: S603
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    processes["memcached"] = identity(started.pid)


def start_server(name: str, home: Path) -> int:
    """Fork a server; return its process."""
    run = import_module(MODULES[name]).main
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        set_process_name(f"swift-{name}-server")
        null = os.open(os.devnull, os.O_RDONLY)
        log = os.open(home / f"log/{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        for descriptor, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, target)
        # Swift logs to syslog alone, which a container does not have. A line per request goes to a file of its own.
        for route, file in ((f"{name}-server", f"{name}.log"), ("proxy-access", "access.log")):
            if name == "proxy" or route != "proxy-access":
                logging.getLogger(route).addHandler(logging.FileHandler(home / "log" / file))
        sys.argv = [f"swift-{name}-server", str(home / f"etc/{name}-server.conf")]
        code = run() or 0
    finally:
        os._exit(code)


def set_process_name(name: str) -> None:
    """Have the system call this process as it calls Swift's own programs; prctl(2), the name is cut to 15 bytes."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def wait_ready(home: Path, port: int, processes: dict[str, list[int]]) -> None:
    """Wait until a login and a new container succeed; end with the reason where they do not."""
    deadline, reason = time.monotonic() + READY_TIMEOUT_S, ""
    while time.monotonic() < deadline:
        dead = [name for name, process in processes.items() if not is_alive(process)]
        if dead:
            words = last_words(home / f"log/{dead[0]}.log")
            stop(home)
            fail(f"the {dead[0]} server ended at once: {words}")
        try:
            make_container(port)
        except OSError as error:
            reason = str(error)
            time.sleep(0.05)
        else:
            return
    stop(home)
    fail(f"not ready after {READY_TIMEOUT_S:.0f} s: {reason}; the logs are in {home}/log")


def make_container(port: int) -> None:
    """Log in and make a container, which needs every server."""
    login = urllib.request.Request(
        f"http://{HOST}:{port}/auth/v1.0", headers={"X-Auth-User": USER, "X-Auth-Key": PASSWORD}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(login, timeout=5) as answer:
        url, token = answer.headers["X-Storage-Url"], answer.headers["X-Auth-Token"]
    for method in ("PUT", "DELETE"):
        made = urllib.request.Request(f"{url}/ready", method=method, headers={"X-Auth-Token": token})  # noqa: S310
        opener.open(made, timeout=5).close()


def status(home: Path) -> None:
    """Print whether the store answers."""
    port = running_port(home, "proxy", START)
    make_container(port)
    print(f"Swift {version('swift')} answers at http://{HOST}:{port}; its files are in {home}")
    for name, (pid, _) in read_state(home)["processes"].items():
        print(f"  {name:<10} process {pid}, port {port + OFFSETS[name]}")


def variables(port: int) -> dict[str, str]:
    """Return the variables with which Weighbridge, swift and aws find the store."""
    base = f"http://{HOST}:{port}"
    swift = {"ST_AUTH": f"{base}/auth/v1.0", "ST_USER": USER, "ST_KEY": PASSWORD}
    names = {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": PASSWORD, "AWS_REGION": REGION}
    return {**swift, "AWS_ENDPOINT_URL_S3": base, **names}


def print_next(home: Path, port: int, how: str) -> None:
    """Print what to type next."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # its reader may want the first line alone
    print(f"Swift {version('swift')} {how}: http://{HOST}:{port}, S3 at the same address. Now type:\n")
    print('  eval "$(script/store env)"')
    print("  bench-master doctor --store swift")
    print("  bench-master run-scenario -f objects/quick\n")
    print(f"script/store stop ends it; a line per request is in {home}/log/access.log")


main(sys.argv[1:])
