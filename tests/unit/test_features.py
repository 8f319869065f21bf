"""Every test file belongs to a feature, and `script/test --all FEATURE` selects what it says."""

import re
from fnmatch import fnmatch
from pathlib import Path

import features
import pytest
from features import FEATURES, SelectionError, files_of, select


def test_every_test_file_belongs_to_a_feature():
    """Unit tests as well belong to a part of the product, and not to `unit` alone."""
    known = {file for feature in FEATURES if feature != "unit" for file in files_of(feature)}
    assert [file for file in features.all_files() if file not in known] == []


@pytest.mark.parametrize("feature", FEATURES)
def test_every_pattern_of_a_feature_matches(feature):
    """A pattern that no file matches is left of a file that was renamed."""
    names = [file.removeprefix("tests/") for file in features.all_files()]
    patterns = FEATURES[feature][1].split()
    assert [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in names)] == []


def test_features_are_listed_in_their_order(capsys):
    """Alphabetically, a line each that fits a terminal."""
    assert list(FEATURES) == sorted(FEATURES)
    assert features.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(FEATURES)
    assert max(map(len, lines)) <= 100


ENGINES = re.compile(r"mark\.docker|require_docker|require_podman|\bdef \w+\(.*\bimage\b")


@pytest.mark.parametrize("feature", sorted(features.WITHOUT_ENGINES))
def test_a_feature_without_engines_uses_none(feature):
    """None of its files outside of the unit tests asks for Docker or for an image."""
    files = [file for file in files_of(feature) if "/unit/" not in file]
    assert [file for file in files if ENGINES.search((features.TESTS.parent / file).read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("words", "named", "options"),
    [
        ("archive", ["archive"], []),
        ("archive -v wire", ["archive", "wire"], ["-v"]),
        ("--lf archive", ["archive"], ["--lf"]),
        ("-k archive", [], ["-k", "archive"]),
        ("--maxfail 3 archive", ["archive"], ["--maxfail", "3"]),
        ("--tb=short archive", ["archive"], ["--tb=short"]),
        ("tests/unit -k sysbench", [], ["tests/unit", "-k", "sysbench"]),
        ("tests/unit/test_cli.py::test_x", [], ["tests/unit/test_cli.py::test_x"]),
    ],
)
def test_words_are_features_paths_or_values_of_options(words, named, options, monkeypatch):
    """The value of an option is never taken for a feature."""
    monkeypatch.chdir(features.TESTS.parent)
    selection = select(words.split())
    assert (selection.features, selection.options) == (named, options)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("flet", "'flet' is neither a feature nor a path (did you mean 'fleet'?)"),
        ("archive xyzzy", "'xyzzy' is neither a feature nor a path"),
        ("archive tests", "'archive' is a feature and 'tests' a path: name one or the other"),
    ],
)
def test_what_selects_nothing_is_refused(words, message, monkeypatch):
    """One error, with the nearest feature."""
    monkeypatch.chdir(features.TESTS.parent)
    with pytest.raises(SelectionError, match=f"^{re.escape(message)}$"):
        select(words.split())


def test_files_of_several_features_are_selected_once():
    """They are in order; engines are needed where one of the features needs them."""
    both = select(["jobs", "failures"])
    assert both.files == sorted(set(both.files))
    assert "tests/unit/test_coordinator.py" in both.files
    assert all((Path(features.TESTS.parent) / file).is_file() for file in both.files)
    assert (select(["unit", "wire"]).needs_engines, select(["unit", "docker"]).needs_engines) == (False, True)
