"""Published figures: read strictly, matched by labels only, printed beside ours and never compared."""

import json

import pytest
from places import ROOT

from bench_common.errors import ScenarioError
from bench_common.stats.block_types import Header
from bench_common.treatment import Guest
from bench_master.analysis.published import published_section
from bench_master.run_data.host_samples import COLUMNS, UNIT
from bench_master.scenario.load import load_scenario, parse_scenario
from bench_master.scenario.published import matches_labels
from bench_master.scenario.yaml_tree import Source, builtin_scenarios
from bench_workloads.registry import workload

HEAD = "# title: A study\n# source: its table 3\n"
TABLE = HEAD + (
    "job,threads,where,metric,unit,n,mean,stddev,min,median,max,note\n"
    "cpu,1,bare-metal,events_per_second,1/s,30,100.5,1.5,99,100,103,printed as Hz\n"
    "cpu,2,bare-metal,events_per_second,1/s,1,200,,,,,\n"
    "cpu,1,control,latency_avg_ms,ms,1,0.5,,,,,\n"
    "other,,bare-metal,events_per_second,1/s,1,7,,,,,\n"
)
TEXT = "name: a\npublished: p.csv\njobs: {cpu: {workload: sysbench-cpu, matrix: {params.threads: [1, 2]}}}\n"


def load(folder, table=TABLE, text=TEXT):
    """Return a scenario beside its table."""
    (folder / "p.csv").write_text(table)
    return parse_scenario(Source(str(folder / "s.yaml"), text))


def problem(folder, table):
    """Return what is wrong with a table."""
    with pytest.raises(ScenarioError) as caught:
        load(folder, table)
    (found,) = caught.value.problems
    return str(found)


def test_rows_belong_to_the_treatments_with_their_labels(tmp_path):
    """Only rows of this scenario are kept; numbers are numbers, and empty cells are missing values."""
    published = load(tmp_path).published
    assert (published["title"], published["source"]) == ("A study", "its table 3")
    assert [row["labels"] for row in published["rows"]] == [
        {"job": "cpu", "threads": "1"},
        {"job": "cpu", "threads": "2"},
        {"job": "cpu", "threads": "1"},
    ]
    first, second, _ = published["rows"]
    assert (first["n"], first["mean"], first["median"], first["note"]) == (30, 100.5, 100.0, "printed as Hz")
    assert (second["stddev"], second["max"]) == (None, None)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "'# title: ...' is missing above the table: figures need a source"),
        ("# title: A\njob,where,metric,mean\n", "'# source: ...' is missing"),
        ("# titel: A\n", "line 1: expected '# title: ...' or '# source: ...', once each"),
        (HEAD + "job,where,metrik,mean\n", "line 3: the column 'metric' is missing (did you mean 'metrik'?)"),
        (TABLE + "cpu,1,x,events_per_second\n", "line 8: more or fewer cells than the header has columns"),
        (TABLE.replace("100.5", "fast"), "line 4: 'fast' is not a number ('mean')"),
        (TABLE.replace(",30,", ",1.5,"), "line 4: '1.5' is not a number ('n')"),
        (TABLE.replace("100.5", "1_000"), "line 4: '1_000' is not a number ('mean')"),
        (TABLE.replace("100.5", "1e999"), "line 4: '1e999' is not a number ('mean')"),
        (TABLE.replace("100.5", "nan"), "line 4: 'nan' is not a number ('mean')"),
        (TABLE.replace("bare-metal", ""), "line 4: 'where', 'metric' and 'mean' cannot be empty"),
    ],
)
def test_an_invalid_table_is_refused(tmp_path, table, message):
    """The place is the scenario's line; the message has the line of the table."""
    found = problem(tmp_path, table)
    assert found.startswith(f"{tmp_path}/s.yaml:2:12: published figures {tmp_path}/p.csv: ")
    assert message in found


def test_treatments_without_a_published_measure_are_noted_and_run(tmp_path):
    """Other sizes than those of the study run, with a note on the screen and in the report."""
    scenario = load(tmp_path, TABLE.replace("cpu,", "gpu,"))
    assert scenario.published["rows"] == []
    assert (
        f"{tmp_path}/s.yaml:2: no row of {tmp_path}/p.csv belongs to a treatment of this scenario" in scenario.notes
    )
    assert published_section(Header(published=scenario.published), []).tables == []


def test_a_missing_table_is_an_error(tmp_path):
    """A missing file is an error of the scenario."""
    with pytest.raises(ScenarioError, match="No such file or directory"):
        parse_scenario(Source(str(tmp_path / "s.yaml"), TEXT))


@pytest.mark.parametrize("name", ["../p.csv", "/etc/passwd", "a/b.csv", "p.txt"])
def test_the_table_is_beside_the_scenario(tmp_path, name):
    """A scenario reads no other files of the machine."""
    with pytest.raises(ScenarioError, match="expected a table in the scenario's own folder"):
        load(tmp_path, text=TEXT.replace("p.csv", name))


def test_several_measurements_need_no_such_caution(tmp_path):
    """Without a table, or with spreads on both sides, nothing is said of n."""
    published = load(tmp_path).published
    assert "n is 1" not in published_section(Header(published=published), []).caution


STUDIES = [name for name in builtin_scenarios() if "/" in name]


@pytest.mark.parametrize("scale", ["full", "small"])
@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_a_small_profile_and_published_measures_in_its_units(name, scale):
    """Metric and unit are those of the workload, so that both columns show the same thing."""
    scenario = load_scenario(name, [f"scale={scale}"])
    assert "small" in scenario.profiles
    for row in scenario.published["rows"] if scenario.published else ():
        job = next(one.job for one in scenario.treatments if matches_labels(row, one.labels))
        metrics = workload(job.workload).metrics if isinstance(job, Guest) else ()
        units = dict.fromkeys(COLUMNS, UNIT) | {metric.name: metric.unit for metric in metrics}
        assert units[row["metric"]] == row["unit"]


def test_every_published_row_of_the_studies_belongs_to_a_scenario():
    """No misspelt label leaves a measure out: the scenarios beside a table match all of its rows."""
    for table in ROOT.glob("scenarios/*/published*.csv"):
        names = [name for name in STUDIES if name.startswith(f"{table.parent.name}/")]
        loaded = [load_scenario(name).published for name in names]
        loaded = [one for one in loaded if one and one["file"] == table.name]
        found = {json.dumps(row, sort_keys=True) for published in loaded if published for row in published["rows"]}
        lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
        assert len(found) == len(lines) - 1
