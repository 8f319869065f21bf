"""At which address other hosts reach this one: said by its user, or found without sending anything."""

import argparse

import pytest

from bench_common.argument_types import authority, host_address, host_name
from bench_worker import addresses as module
from bench_worker.addresses import local_address


@pytest.fixture
def routes(monkeypatch):
    """The addresses from which hosts are reached; a host that is not there is not reached."""
    known = {}
    monkeypatch.setattr(module, "_source_address", known.get)
    return known


def test_what_the_user_says_goes_first(routes):
    """Behind NAT nobody else knows."""
    routes["master"] = "10.0.0.1"
    assert local_address("tcp://master:13577", "198.51.100.7") == "198.51.100.7"


def test_it_is_the_address_with_which_the_master_is_reached(routes):
    """That one is known to be on the way of others."""
    routes |= {"10.0.0.9": "10.0.0.1", "192.0.2.1": "172.16.0.1"}
    assert local_address("tcp://10.0.0.9:13577", None) == "10.0.0.1"


@pytest.mark.parametrize("control", ["ipc:///run/x", "tcp://127.0.0.1:13577", "tcp://[::1]:13577", "tcp://gone:1"])
def test_without_leaving_the_host_it_is_the_one_of_the_way_out(routes, control):
    """A local master, a tunnel, IPv6, a name that nobody knows."""
    routes |= {"127.0.0.1": "127.0.0.1", "192.0.2.1": "172.16.0.1"}
    assert local_address(control, None) == "172.16.0.1"


def test_a_host_without_any_network_has_its_loopback(routes):
    """Its own jobs reach it there."""
    assert local_address("ipc:///run/x", None) == "127.0.0.1"


def test_the_loopback_is_reached_from_itself():
    """As the kernel says."""
    assert module._source_address("127.0.0.1") == "127.0.0.1"
    assert module._source_address("no address") is None


def test_a_host_that_has_ipv6_alone_has_an_address_of_it(routes):
    """That of the way to its master, else that of the way out; one of a link alone means nothing elsewhere."""
    routes["fd00::1"] = "fd00::7"
    assert local_address("tcp://[fd00::1]:13577", None) == "fd00::7"
    routes |= {"fe80::1%eth0": "fe80::7%eth0", "2001:db8::1": "fd01::7"}
    assert local_address("tcp://[fe80::1%eth0]:13577", None) == "fd01::7"


@pytest.mark.parametrize("text", ["0.0.0.0", "224.0.0.1", "::", "ff02::1", "blade-1", "10.0.0", "fd00:::1", "[]", ""])
def test_only_an_address_of_one_host_is_one(text):
    """Refused where it is given, before anything is started."""
    with pytest.raises(argparse.ArgumentTypeError, match="expected the IP address of a host"):
        host_address(text)


def test_an_address_of_one_link_is_refused():
    """Another host has other links."""
    with pytest.raises(argparse.ArgumentTypeError, match="link-local address"):
        host_address("fe80::1%eth0")


@pytest.mark.parametrize(
    ("text", "address"),
    [("10.0.0.5", "10.0.0.5"), ("[fd00::5]", "fd00::5"), ("FD00:0::5", "fd00::5"), ("::ffff:10.0.0.5", "10.0.0.5")],
)
def test_an_address_is_one_however_it_is_written(text, address):
    """With brackets or without; an IPv4 address that is dressed as IPv6 is IPv4."""
    assert host_address(text) == address


@pytest.mark.parametrize("text", ["master", "10.0.0.5", "fd00::5", "[fd00::5]", "fe80::1%eth0"])
def test_a_master_is_named_by_name_or_address(text):
    """Brackets are of a port that follows, and none does."""
    assert host_name(text) == text.strip("[]")


@pytest.mark.parametrize(
    ("text", "port"), [("10.0.0.5:13577", "13577"), ("[::1]:13577", "13577"), ("a b", None), ("fd00::g", None)]
)
def test_what_is_no_host_is_refused_with_what_to_do_about_its_port(text, port):
    """zmq would ask for such a name for ever."""
    with pytest.raises(argparse.ArgumentTypeError, match="expected a host name or IP address") as caught:
        host_name(text)
    assert ("; give the port 13577 with its own option" in str(caught.value)) == (port is not None)


def test_an_ipv6_address_has_brackets_where_a_port_follows():
    """And a name has none."""
    assert (authority("fd00::5", 80), authority("blade-1", 80)) == ("[fd00::5]:80", "blade-1:80")
