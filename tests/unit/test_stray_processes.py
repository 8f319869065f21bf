"""Which processes are in a container that its runtime does not know, by their cgroups."""

import pytest

from bench_worker.engines.oci.processes import cgroups_of, end_processes

NAME = "wb-1a2b-3-0"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"0::/weighbridge/{NAME}\n", {"": f"/weighbridge/{NAME}"}),
        (
            f"6:freezer:/weighbridge/{NAME}\n1:name=systemd:/weighbridge/{NAME}\n0::/\n",
            {"freezer": f"/weighbridge/{NAME}", "name=systemd": f"/weighbridge/{NAME}"},
        ),
        (f"0::/docker/0a1b/weighbridge/{NAME}/inner\n", {"": f"/docker/0a1b/weighbridge/{NAME}/inner"}),
        (f"0::/weighbridge/{NAME}0\n", {}),
        (f"0::/weighbridge/x{NAME}\n", {}),
        (f"0::/others/{NAME}\n", {}),
        ("0::/\n", {}),
    ],
)
def test_a_process_is_a_containers_by_the_name_of_its_cgroup(tmp_path, text, found):
    """In either version, below another container's cgroup, and in a cgroup of its own; no other name will do."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(text)
    assert cgroups_of(7, NAME, tmp_path) == found


def test_a_process_that_has_ended_is_an_error(tmp_path):
    """The caller passes over it."""
    with pytest.raises(FileNotFoundError):
        cgroups_of(7, NAME, tmp_path)


def test_a_container_without_processes_needs_nothing():
    """Nearly every one: its runtime has just deleted it."""
    end_processes("wb-no-such-container")
