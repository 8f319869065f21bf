"""The study of MySQL on Docker: its cells are those that were published, at any scale."""

import csv
from collections import Counter

from places import ROOT

from bench_master.scenario.load import load_scenario

FOLDER = ROOT / "scenarios" / "mysql-on-docker"
COLUMNS = ("job", "engine", "buffer_pool_size", "network", "storage")


def cells(*overrides):
    treatments = load_scenario(str(FOLDER / "oltp.yaml"), overrides).treatments
    return [tuple(str(one.labels.get(column, "")) for column in COLUMNS) for one in treatments]


def test_its_cells_are_the_published_ones():
    """Each of the 14 figures has its treatment, and each treatment its measure."""
    lines = (FOLDER / "published.csv").read_text().splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    assert [line.split(":")[0] for line in lines[:2]] == ["# title", "# source"]
    assert len(rows) == 14
    assert Counter(tuple(row[column] for column in COLUMNS) for row in rows) == Counter(cells())
    assert {(row["metric"], row["unit"], row["n"]) for row in rows} == {("transactions_per_second", "1/s", "3")}


def test_it_is_what_was_published():
    """Database, warm-up, runs, storage, settings in a file; what was not published is chosen once for all cells."""
    scenario = load_scenario(str(FOLDER / "oltp.yaml"))
    assert scenario.repeats == (3,) * 14
    for one in scenario.treatments:
        params = one.job.params
        assert (params["test"], params["tables"], params["table_size"]) == ("read_write", 10, 1_000_000)
        assert (params["warmup"], params["time"], params["threads"]) == (320, 320, 16)
        assert one.container.network == "host"
        (settings,) = one.services["mariadb"].files.values()
        assert f"innodb_buffer_pool_size = {params['buffer_pool_size']}\n" in settings
        if one.engine == "docker":
            (mount,) = one.services["mariadb"].storage
            assert (mount.target, mount.source) == ("/var/lib/mysql", "")
