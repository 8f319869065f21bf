"""Certificates of a run's hosts: which are found as it begins, and what its reports say of them."""

import io
import json

import pytest
from certificates import MACHINE, a_run, certificate
from rounds import Rounds

from bench_common.stats.reader import StatsFile
from bench_features.certify.certificate import kept_file, save
from bench_features.certify.in_runs import CERTIFIED
from bench_features.certify.page import clause
from bench_master.reports import ReportSource, report_named

FACTS = {**MACHINE, "hostname": "blade"}


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """Return the certificate that is kept of a machine."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    made = certificate([a_run(), a_run(1)])
    save(made, kept_file("blade", MACHINE))
    return made


def test_a_host_has_the_certificate_of_its_machine(kept):
    """By its name and machine id; another host of the run has none, and is not told of."""
    found = CERTIFIED.certificates({"blade1": FACTS, "other": {**FACTS, "machine_id": "f" * 16}, "mute": {}})
    assert found == [{"host": "blade1", "id": kept.id, "created": kept.created, "says": clause(kept), "void": []}]


def test_a_certificate_that_does_not_hold_says_why(kept):
    """It is in the header all the same, with what changed."""
    (found,) = CERTIFIED.certificates({"blade": {**FACTS, "kernel": "6.2"}})
    assert (found["id"], found["void"]) == (kept.id, ["kernel 6.1 is now 6.2"])


def test_a_damaged_certificate_does_not_stop_a_run(kept, caplog):
    """It is logged with its file, and left out."""
    path = kept_file("blade", MACHINE)
    path.write_text(path.read_text().replace('"margin": 0.03', '"margin": 0.04'))
    assert CERTIFIED.certificates({"blade": FACTS}) == []
    assert f"{path}: was changed" in caplog.text


def reported(tmp_path, name, certificates, detail="page"):
    """Return the report of a run whose header has these certificates."""
    sides = [[0.01] * 6, [0.011] * 6]
    path = tmp_path / "run.stats.gz"
    path.unlink(missing_ok=True)
    written = Rounds(path, certificates=certificates).write(*sides)
    out = io.StringIO()
    report_named(name).write(ReportSource(StatsFile(written.path), detail=detail), out)
    return out.getvalue()


VALID = {
    "host": "blade1",
    "id": "0123456789ab",
    "created": "2026-01-02T03:04:05+00:00",
    "says": "so it is",
    "void": [],
}


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (VALID, "0123456789ab of blade1, 2026-01-02: so it is"),
        (
            {**VALID, "void": ["kernel 6.1 is now 6.2", "it is older than 30 days"]},
            "0123456789ab of blade1, 2026-01-02, is void: kernel 6.1 is now 6.2; it is older than 30 days",
        ),
    ],
)
def test_reports_name_the_certificate(tmp_path, one, said):
    """The details of the text and the page do, in the same words; the first page of the text has no line more."""
    assert said in " ".join(reported(tmp_path, "text", [one], "full").split())
    assert f"Certificate {said}." in " ".join(reported(tmp_path, "html", [one]).split())
    assert reported(tmp_path, "text", [one]) == reported(tmp_path, "text", [])
    assert json.loads(reported(tmp_path, "json", [one]))["run"]["certificates"] == [one]


def test_each_of_several_hosts_is_named(tmp_path):
    """A certificate is of one host, and says of which."""
    text = " ".join(reported(tmp_path, "text", [VALID, {**VALID, "host": "blade2"}], "full").split())
    assert "0123456789ab of blade2, 2026-01-02: so it is" in text
