"""Notes of which engines runs have used here."""

import pytest

from bench_common.errors import InfrastructureError
from bench_worker import engine_usage_log
from bench_worker.engine_usage_log import delete_records, record_engine_use, recorded_uses


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_usage_log, "ROOTS_DIRECTORY", tmp_path / "root")
    monkeypatch.setattr(engine_usage_log, "SHARED_DIRECTORY", tmp_path / "shared")
    return tmp_path


def noted(run_id=None):
    return [(use.run_id, use.engine) for use in recorded_uses(run_id)]


def test_each_run_and_engine_is_noted_once():
    """Every worker of a run notes it."""
    for engine in ("docker", "podman", "docker"):
        record_engine_use("r1", engine)
    record_engine_use("r2", "docker")
    assert noted() == [("r1", "docker"), ("r1", "podman"), ("r2", "docker")]
    assert noted("r2") == [("r2", "docker")]


def test_names_are_read_as_they_were_written():
    """Whatever a third party calls its engine, the note stays a file of its folder."""
    record_engine_use("kept-1", "../their:engine")
    assert noted() == [("kept-1", "../their:engine")]


def test_a_note_can_be_cleared_away_more_than_once():
    """Two workers may clean up at a time."""
    record_engine_use("r1", "docker")
    found = recorded_uses()
    delete_records(found)
    delete_records(found)
    assert noted() == []


@pytest.mark.parametrize("root", [True, False])
def test_another_folder_serves_where_the_first_cannot_be_written(folders, monkeypatch, root):
    """A system may be read-only; where no folder takes a note, the engine is not used at all."""
    monkeypatch.setattr(engine_usage_log.os, "geteuid", lambda: 0 if root else 1000)
    (folders / "root").write_text("no folder")
    record_engine_use("r1", "docker")
    assert [use.path.parent.name for use in recorded_uses()] == ["shared"]
    delete_records(recorded_uses())
    (folders / "shared").rmdir()
    (folders / "shared").write_text("no folder")
    with pytest.raises(InfrastructureError, match="cannot record"):
        record_engine_use("r1", "docker")
    assert noted() == []
