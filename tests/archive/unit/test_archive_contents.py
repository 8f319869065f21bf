"""What the index takes of a stats file: it comes out as it went in."""

from archive_runs import a_run
from msgspec.structs import replace

from bench_features.archive.archive import Archive
from bench_features.archive.extract import contents_of


def test_treatments_come_out_of_the_index_as_they_went_in(tmp_path):
    """With their trials, values and quantiles; added is the key of the series, which the hosts are a part of."""
    path = a_run(tmp_path / "run.stats.gz")
    taken = contents_of(path, "x", 1)
    with Archive.open(str(tmp_path / "archive"), create=True) as archive:
        found = archive.run(archive.add(path).id).treatments
    assert len(found) == 2
    assert all(one.series and one.trials and one.values and one.quantiles and one.summary for one in found)
    without = [replace(one, series="", values=sorted(one.values, key=str)) for one in found]
    assert without == [replace(one, values=sorted(one.values, key=str)) for one in taken.treatments]
