"""At which address other hosts reach this one: said by its user, or found without sending anything."""

import argparse

import pytest

from bench_common.arguments import ipv4
from bench_worker import own_address as module
from bench_worker.own_address import own_address


@pytest.fixture
def routes(monkeypatch):
    """The addresses from which hosts are reached; a host that is not there is not reached."""
    known = {}
    monkeypatch.setattr(module, "_source", known.get)
    return known


def test_what_the_user_says_goes_first(routes):
    """Behind NAT nobody else knows."""
    routes["master"] = "10.0.0.1"
    assert own_address("tcp://master:13577", "198.51.100.7") == "198.51.100.7"


def test_it_is_the_address_with_which_the_master_is_reached(routes):
    """That one is known to be on the way of others."""
    routes |= {"10.0.0.9": "10.0.0.1", "192.0.2.1": "172.16.0.1"}
    assert own_address("tcp://10.0.0.9:13577", None) == "10.0.0.1"


@pytest.mark.parametrize("control", ["ipc:///run/x", "tcp://127.0.0.1:13577", "tcp://[::1]:13577", "tcp://gone:1"])
def test_without_leaving_the_host_it_is_the_one_of_the_way_out(routes, control):
    """A local master, a tunnel, IPv6, a name that nobody knows."""
    routes |= {"127.0.0.1": "127.0.0.1", "192.0.2.1": "172.16.0.1"}
    assert own_address(control, None) == "172.16.0.1"


def test_a_host_without_any_network_has_its_loopback(routes):
    """Its own jobs reach it there."""
    assert own_address("ipc:///run/x", None) == "127.0.0.1"


def test_the_loopback_is_reached_from_itself():
    """As the kernel says."""
    assert module._source("127.0.0.1") == "127.0.0.1"


@pytest.mark.parametrize("text", ["0.0.0.0", "224.0.0.1", "::1", "blade-1", "10.0.0", ""])
def test_only_an_address_of_one_host_is_one(text):
    """Refused where it is given, before anything is started."""
    with pytest.raises(argparse.ArgumentTypeError, match="expected the IPv4 address of a host"):
        ipv4(text)
    assert ipv4("10.0.0.5") == "10.0.0.5"
