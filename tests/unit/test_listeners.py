"""Which processes listen where jobs send their requests: found by port, not by name."""

import os
import socket

from bench_worker.host.listeners import is_here, listening_processes
from bench_worker.host.procfs import LiveHostFiles


def test_a_process_is_found_by_the_port_at_which_it_listens():
    """A connection to it is none."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as connection,
    ):
        ports = [one.getsockname()[1] for one in (listener, connection)]
        found = [listening_processes(LiveHostFiles(), {port}) for port in ports]
    assert [os.getpid() in one for one in found] == [True, False]
    assert listening_processes(LiveHostFiles(), ()) == frozenset()


def test_a_host_is_this_one_by_its_loopback_addresses_and_its_own():
    """A name is looked up nowhere."""
    assert all(is_here(host) for host in ("127.0.0.1", "127.4.5.6", "::1", "localhost", socket.gethostname()))
    assert not any(is_here(host) for host in ("192.0.2.1", "2001:db8::1", "store.example"))
