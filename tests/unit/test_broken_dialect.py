"""A package that reads other tools' scenario files and cannot be loaded stops nobody who writes no such file."""

from importlib.metadata import EntryPoint

import pytest

from bench_common import registered
from bench_master.scenario import dialects
from bench_master.scenario.dialects import load_scenario_or_definition

SCENARIO = "name: a\nengines: [native]\njob: {operations: [run, wait, remove], container: {command: ['true']}}\n"


@pytest.fixture
def broken(tmp_path, monkeypatch):
    (tmp_path / "raising_dialect.py").write_text("raise RuntimeError('broken at import')\n")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("broken", "raising_dialect:DIALECT", dialects.GROUP)
    monkeypatch.setattr(dialects, "registered", lambda group: [*registered(group), point])
    dialects.dialects.cache_clear()
    yield
    dialects.dialects.cache_clear()


@pytest.mark.usefixtures("broken")
def test_a_dialect_that_cannot_be_loaded_is_named_and_left_out(tmp_path, capsys):
    """Once, with its entry point and the reason; a scenario is read, and the other dialects are there."""
    path = tmp_path / "a.yaml"
    path.write_text(SCENARIO)
    for _ in range(2):
        assert load_scenario_or_definition(str(path)) is not None
    told = capsys.readouterr().err
    assert told.count("scenario files of broken (raising_dialect:DIALECT) are not understood") == 1
    assert "RuntimeError: broken at import" in told
    assert dialects.dialects()
