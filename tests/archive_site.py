"""An archive to look at: a trend with a step and a break, two hosts, a pruned run, and one with hostile texts."""

from archive_runs import a_run
from chart_runs import HOSTILE

from bench_features.archive.archive import Archive
from bench_features.archive.prune import Candidate, remove_file
from bench_features.archive.site.site import BackgroundThread, ReportCache, Site

RUNS = 14
"""Runs of the scenario quickstart."""
STEP = 9
"""The first one that takes longer."""


def fill(url, folder):
    """Make the archive; return the ids of runs: those of quickstart, the oldest first, a pruned and a hostile one."""
    with Archive.open(url, create=True) as archive:
        ids = []
        for number in range(RUNS):
            level = 1.3 if number >= STEP else 1.0
            times = tuple((100 + (number * 7 + trial * 3) % 4 - 2) * level for trial in range(6))
            path = a_run(
                folder / f"{number}.stats.gz",
                number,
                times=times,
                facts={"kernel": "6.1.0" if number > 3 else "6.0.0"},
                host="blade2" if number == RUNS - 1 else "blade1",
            )
            ids.append(archive.add(path).id)
        pruned = archive.add(a_run(folder / "pruned.stats.gz", 50, name="other"))
        remove_file(archive, Candidate(pruned.sha256, "other", None, 0))
        words = " ".join(HOSTILE[:4])
        hostile = archive.add(
            a_run(
                folder / "hostile.stats.gz", 60, name=words, host=HOSTILE[0], facts={"kernel": words, HOSTILE[4]: "1"}
            )
        )
        archive.annotate(
            [
                (archive.find(ids[0]), "tag", "release-1"),
                (archive.find(ids[0]), "name", "golden"),
                (hostile.sha256, "tag", HOSTILE[0]),
                (hostile.sha256, "note", words),
            ]
        )
    return [*ids, pruned.id, hostile.id]


def site_of(url, folder):
    """Return the site of an archive, which keeps reports in a folder."""
    return Site(Archive.open(url), ReportCache(folder), BackgroundThread())
