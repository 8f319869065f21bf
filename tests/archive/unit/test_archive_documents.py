"""Which facts make up a machine; filters are bounded."""

import pytest
from archive_runs import a_run

from bench_common.errors import closest_match
from bench_features.archive.archive import Archive
from bench_features.archive.facts import MACHINE_FACTS, fact_texts, steadied
from bench_master.cli import run_command_line
from bench_worker.host.fingerprint import FACTS


def test_what_makes_up_a_machine_is_in_its_fingerprint():
    """All else, such as boot ids, is noise."""
    assert FACTS.keys() >= MACHINE_FACTS
    assert not MACHINE_FACTS & {"boot_id", "hostname", "bogomips", "cpu_microcode", "package_numpy"}


def test_noise_changes_no_fingerprint():
    """A boot changes noise and a little memory: that is the same machine, and more memory is another one."""
    facts = {"cpu_model": "A", "memory": 25_276_502_016, "kernel": "6.1", "boot_id": "x", "weight": 1.5, "smt": None}
    kept = fact_texts(facts)
    assert kept == {"cpu_model": "A", "memory": "25276502016", "kernel": "6.1"}
    assert fact_texts(facts, noise=True) == {"boot_id": "x", "weight": "1.5"}
    assert fact_texts(facts | {"boot_id": "y"}) == kept
    assert steadied(kept, fact_texts(facts | {"memory": 25_300_000_000})) == kept
    assert steadied(kept, fact_texts(facts | {"memory": 50_000_000_000}))["memory"] == "50000000000"
    assert steadied({}, kept) == kept


@pytest.mark.parametrize("option", ["--scenario", "--host"])
def test_a_filter_has_a_length(tmp_path, capsys, option):
    """A word of 100 kB is an error of one line: it is compared with no name that there is, which took minutes."""
    place = str(tmp_path / "archive")
    with Archive.open(place, create=True) as archive:
        archive.add(a_run(tmp_path / "run.stats.gz", name="n" * 100_000))
    capsys.readouterr()
    status = run_command_line(["archive", "list", option, "n" * 99_999, "--archive", place])
    (told,) = capsys.readouterr().err.splitlines()
    assert status == 2
    assert len(told) < 1000


def test_a_long_word_is_no_misspelling():
    """Nor is a short one that of a long name: the nearest one of many takes the product of their lengths."""
    assert closest_match("quickstrat", ["quickstart", "x" * 100_000]) == "quickstart"
    assert closest_match("x" * 99_999, ["x" * 100_000]) is None
