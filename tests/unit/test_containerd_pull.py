"""Images that containerd pulls: their names, the entry of an index that is for this machine, what ctr says."""

import pytest

from bench_worker.engines.base import ImageUnavailable
from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.containerd.images import is_for_this_machine, qualified_name
from bench_worker.engines.containerd.pull import _KINDS


def test_short_names_mean_what_they_mean_to_docker():
    """The Docker Hub, and the tag latest; a registry's name has a dot or a port."""
    assert qualified_name("busybox") == "docker.io/library/busybox:latest"
    assert qualified_name("some/image:1") == "docker.io/some/image:1"
    assert qualified_name("localhost:5000/a/b") == "localhost:5000/a/b:latest"
    with pytest.raises(ImageUnavailable):
        qualified_name(None)


def test_which_entry_of_an_index_is_for_this_machine():
    """One that says nothing may be; attestations and other systems are not."""
    assert is_for_this_machine({})
    assert not is_for_this_machine({"platform": {"architecture": "unknown", "os": "unknown"}})
    assert not is_for_this_machine({"platform": {"os": "windows"}})


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ('ctr: failed to resolve reference "r/a:1": r/a:1: not found', "image-missing"),
        ("ctr: pull access denied, repository does not exist or may require authorization", "image-missing"),
        ('ctr: failed to do request: Head "https://r/v2/": dial tcp 127.0.0.1:1: connection refused', "unreachable"),
        ('ctr: failed to do request: Head "https://r/v2/": dial tcp: lookup r: no such host', "unreachable"),
        ("ctr: failed to copy: write: no space left on device", "disk-full"),
    ],
)
def test_what_ctr_says_of_a_registry_has_a_kind(said, kind):
    """An image that is missing is no engine that broke."""
    assert CommandLine("ctr", error_kinds=_KINDS).classify_error(said) == kind
