"""From bytes to a tree: what is wrong with the file or the YAML itself is one clear problem at its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_common.errors import ScenarioError, UsageError
from bench_master.scenario import load_scenario
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import MAX_BYTES, MAX_DEPTH, Source, TreeComposer, builtin_scenarios, read_source

GOOD = "name: a\njob: {operations: [sleep: 1s]}\n"


def problems(text):
    """Return what is wrong with the YAML of a text."""
    composer = TreeComposer(text, "s.yaml")
    composer.compose()
    return [str(problem) for problem in composer.problems]


def refusal(text):
    """Return why a scenario of this text is refused."""
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(Source("s.yaml", text))
    return str(caught.value)


def outcome(text):
    """Return the treatments of a text, or its problems; any other exception is a failure."""
    try:
        return parse_scenario(Source("s.yaml", text)).treatments
    except ScenarioError as error:
        return error.problems


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "s.yaml:3:1: key 'a' appears twice (first on line 1)"),
        ("x:\n  - y: {z: 1, z: 2}\n", "s.yaml:2:15: key 'z' appears twice (first on line 2)"),
        ("a:\n\tb: 1\n", "s.yaml:2:1: a tab for indentation: YAML requires spaces"),
        ("a: b: c\n", "s.yaml:1:5: YAML syntax: mapping values are not allowed here (a second ': ' on one line"),
        ("a: [1\n", "s.yaml:2:1: YAML syntax: while parsing a flow sequence, expected ',' or ']'"),
        ("a: @x\n", "s.yaml:1:4: YAML syntax"),
        ("a: 1\n---\nb: 2\n", "s.yaml:2:1: a second document starts here"),
        ("a: !!int 5\n", "s.yaml:1:4: a scenario has no tags: remove 'tag:yaml.org,2002:int'"),
        ("a: !!python/object:os.system {}\n", "s.yaml:1:4: a scenario has no tags"),
        ("a: x\nb: y\x07z\n", "s.yaml:2:5: character U+0007 is not allowed"),
        ("? [1]\n: 2\n", "s.yaml:1:3: a key must be a word, not a list"),
        ("a: *b\n", "s.yaml:1:4: alias *b has no anchor &b before it"),
        ("a: &b [*b]\n", "s.yaml:1:8: alias *b is inside its own anchor"),
        ("<<: 5\n", "s.yaml:1:5: `<<` merges mappings"),
    ],
)
def test_what_is_wrong_with_the_yaml_is_said_at_its_place(text, said):
    """Each mistake in the YAML gives one problem that starts with file, line and column."""
    assert len(problems(text)) == 1
    assert problems(text)[0].startswith(said)


def test_all_duplicate_keys_are_found_at_once():
    """Duplicates at any depth are all reported, not only the first."""
    assert len(problems("a: 1\na: 2\nb: {c: 1, c: 2, c: 3}\n")) == 3


def test_an_alias_bomb_is_refused():
    """Aliases that grow beyond any useful scenario are refused before anything walks them."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert "aliases expanded" in problems("\n".join(lines))[0]


@pytest.mark.parametrize("text", ["[" * 5000, "{a: " * 5000, "- " * 5000 + "x"])
def test_bottomless_nesting_is_refused(text):
    """Depth is bounded, so no text can exhaust the stack."""
    assert f"deeper than {MAX_DEPTH} levels" in problems(text)[0]


def test_depth_is_counted_through_aliases():
    """A chain of anchors cannot build the depth that the text itself may not have."""
    text = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 60))])
    assert f"deeper than {MAX_DEPTH} levels" in problems(text)[0]


def test_anchors_and_merge_keys_work():
    """An anchored mapping can be merged; a key of its own wins over a merged one."""
    scenario = parse_scenario(
        Source(
            "s.yaml",
            "name: a\nengines: [native]\njobs:\n"
            "  one: &one {operations: [sleep: 1s], iterations: 3, concurrency: 2}\n"
            "  two: {<<: *one, iterations: 5}\n",
        )
    )
    assert [(each.iterations, each.concurrency) for each in scenario.treatments] == [(3, 2), (5, 2)]


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "null\n", "~"])
def test_an_empty_file_says_what_a_scenario_has(text):
    """A file without content is one problem that says what is wanted."""
    assert refusal(text) == "s.yaml:1:1: the file is empty; a scenario needs at least 'name' and 'job' or 'jobs'"


@pytest.mark.parametrize(("text", "what"), [("[a]", "a list"), ("hello", "'hello'")])
def test_a_scenario_is_a_mapping(text, what):
    """Anything but a mapping at the top is refused with what it is."""
    assert refusal(text) == f"s.yaml:1:1: a scenario is a mapping of keys to values, not {what}"


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    """A file that an editor began with a BOM loads, and its columns are not shifted."""
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_scenario(str(path), ["engines=[native]"]).name == "a"


def test_a_file_that_is_not_utf_8_says_where(tmp_path):
    """The first byte that is not UTF-8 is named with its place, counted in characters."""
    path = tmp_path / "latin.yaml"
    path.write_bytes("name: ä\n".encode() + "x: é".encode("latin-1"))
    with pytest.raises(ScenarioError, match=r"latin\.yaml:2:4: byte 0xe9 is not UTF-8"):
        load_scenario(str(path))


def test_a_huge_file_is_refused(tmp_path):
    """A file larger than the limit is refused without being parsed."""
    path = tmp_path / "huge.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ScenarioError, match="larger than 1048576 bytes"):
        load_scenario(str(path))


@pytest.mark.parametrize(("written", "meant"), [(r"\ud83d\ude00", "\U0001f600"), (r"a\u00e9", "a\u00e9")])
def test_json_means_one_character_by_two_escapes(written, meant):
    """What JSON writes for a character beyond U+FFFF comes in as that character."""
    scenario = parse_scenario(
        Source(
            "s.yaml",
            f'{{"name": "a", "description": "{written}", "engines": ["native"],'
            '"job": {"operations": [{"sleep": "1s"}]}}',
        )
    )
    assert scenario.description == meant


def test_half_of_a_character_is_refused():
    """It could be neither shown nor sent."""
    said = refusal(GOOD + r'description: "x\ud83d"')
    assert said == r"s.yaml:3:14: 'x\ud83d' contains half of a surrogate pair: remove it"


def test_a_job_that_no_message_carries_is_refused():
    """A small file may say a large thing many times over: a worker could not be told, and the run would wait."""
    job = "job: {operations: [run], container: {command: [a], env: {A: &a %s, B: *a}}}"
    large = f"name: a\nengines: [native]\n{job % ('x' * 600_000)}\n"
    assert len(large) < MAX_BYTES
    said = refusal(large)
    assert said.startswith(
        "s.yaml:1:1: engine=native is too large to send to a worker: message 'define_treatment' has 12"
    )
    assert said.endswith("; shorten its texts")


@pytest.mark.parametrize("reference", ["quickstrt", "scenarios/quickstrt.yaml", "Quickstart"])
def test_a_missing_scenario_names_the_nearest(reference, tmp_path, monkeypatch):
    """A name that is no file and not ready-made gets the nearest right spelling."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"did you mean 'quickstart'"):
        load_scenario(reference)


def test_a_missing_file_names_its_neighbour(tmp_path, monkeypatch):
    """A path with a slip of the finger gets the file beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mysql.yaml").write_text(GOOD)
    with pytest.raises(UsageError, match=r"did you mean 'mysql.yaml'"):
        load_scenario("mysqll.yaml")


def test_a_directory_is_no_scenario(tmp_path):
    """A directory is refused with what to name instead."""
    with pytest.raises(UsageError, match="is a directory; name a scenario file in it"):
        load_scenario(str(tmp_path))


def test_a_file_comes_before_a_ready_made_scenario_of_its_name(tmp_path, monkeypatch):
    """What lies in the working directory is what the user sees, so it wins."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").write_text(GOOD)
    assert read_source("quickstart").text == GOOD


def test_every_ready_made_scenario_loads():
    """What is shipped can be run as it is."""
    shipped = builtin_scenarios()
    assert {"quickstart", "lifecycle", "concurrency", "noop"} <= shipped.keys()
    for name in shipped:
        assert load_scenario(name).treatments


@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text):
    """Any text either loads or is refused with problems; nothing else is ever raised."""
    assert outcome(text)


@given(st.data())
def test_no_damage_breaks_the_loader(data):
    """A good scenario with a piece cut out or put in either loads or is refused with problems."""
    text = builtin_scenarios()["lifecycle"].read_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    piece = data.draw(st.text(alphabet="{}[]:,-&*<? \n\tabc019.'\"|>!", max_size=6))
    assert outcome(text[:start] + piece + text[end:])


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name: a\njob: {operations: [run, wait]\nrepeats: 3\n", "line 2, column 6"),
        ("name: a\njob:\n  operations: [run, wait\nrepeats: 3\n", "line 3, column 15"),
        ("name: 'a\njob:\n  operations: [run, wait]\n", "line 1, column 7"),
        ('name: a\ndescription: "b\nrepeats: 3\n', "line 2, column 14"),
    ],
)
def test_what_was_never_closed_is_told_with_where_it_opens(text, place):
    """A brace, bracket or quote without its end is named where it opens, not only where the reader gave up."""
    with pytest.raises(ScenarioError, match=f"; it opens on {place}$"):
        parse_scenario(Source("s.yaml", text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "nmae: a\njob: {operations: [run, remove]}\ncontaner: {image: x}\n",
            [
                "s.yaml:1:1: unknown key 'nmae' in the scenario (did you mean 'name'?)",
                "s.yaml:3:1: unknown key 'contaner' in the scenario (did you mean 'container'?)",
            ],
        ),
        (
            "name: a\njob: {operatons: [run]}\n",
            ["s.yaml:2:7: unknown key 'operatons' in the job (did you mean 'operations'?)"],
        ),
        (
            "name: a\njob: {operations: [run]}\ncontainer: {imge: x}\n",
            ["s.yaml:3:13: unknown key 'imge' in the container (did you mean 'image'?)"],
        ),
        (
            "name: a\nworkload: sysbench-cpu\nparams: {time: 1s}\n",
            [
                "s.yaml:2:1: unknown key 'workload' in the scenario: it belongs under 'job:'",
                "s.yaml:3:1: unknown key 'params' in the scenario: it belongs under 'job:'",
            ],
        ),
        (
            "nmae: a\njobs: {one: {operatons: [run]}, two: {timeout: 1s}}\n",
            [
                "s.yaml:1:1: unknown key 'nmae' in the scenario (did you mean 'name'?)",
                "s.yaml:2:14: unknown key 'operatons' in the job (did you mean 'operations'?)",
                "s.yaml:2:38: 'operations', 'workload' or 'objects' is missing",
            ],
        ),
    ],
)
def test_one_mistake_is_told_once(text, said):
    """A misspelt or misplaced key is not told a second time as one that is missing; what is missing elsewhere is."""
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(Source("s.yaml", text))
    assert [str(problem) for problem in caught.value.problems] == said
