"""The archive as what a run is judged by: ``--baseline trend``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bench_common.errors import UsageError
from bench_common.safe_text import one_line
from bench_features.archive.archive import Archive
from bench_features.archive.extract import series_key
from bench_features.archive.facts import machine_facts, steadied
from bench_features.archive.trend_types import facts_text
from bench_features.archive.trends import History, changed_facts, iso, points_of
from bench_features.archive.types import Series
from bench_master.analysis.trend_source import PastSeries
from bench_master.analysis.verdict_types import RunFileReport
from bench_master.formatting import listed
from bench_master.run_data.summary import RunSummary, TreatmentSummary
from bench_master.verdicts.between_runs import RunLevels
from bench_master.verdicts.reasons import Code, Reason, because


class ArchiveTrend:
    """The trends of one archive, opened only while it is asked."""

    def __init__(self, folder: str | None = None, *, create: bool = False) -> None:
        self._folder = folder
        self._create = create
        """Whether the run itself will make the archive: then there is none yet, and that is no error."""

    def check(self) -> None:
        """Raise `UsageError` or `InfrastructureError` where there is no archive that can be asked."""
        if not self._create:
            self._opened().close()

    def _opened(self) -> Archive:
        try:
            return Archive.open(self._folder, create=self._create)
        except UsageError as error:
            raise UsageError(f"--baseline trend: {error}") from error

    def past(self, run: RunSummary) -> Mapping[str, PastSeries]:
        """Return the earlier runs of each treatment by its title, as far as the machine is the one of this run."""
        place = ", ".join(sorted(run.hosts))
        machine = machine_facts(run.hosts)
        found = {}
        with self._opened() as archive:
            known = {one.key: one for one in archive.series()}
            for treatment in run.treatments.values():
                key = series_key(run, treatment.definition, treatment.measure)
                if key not in known:
                    found[treatment.title] = _nothing(_why_unknown(treatment, run, place, known.values()))
                    continue
                earlier = [point for point in points_of(known[key])[1] if point.created < run.began_s]
                found[treatment.title] = _past(History(earlier, archive.acknowledged(key)), machine)
        return found


def _past(history: History, machine: Mapping[str, str]) -> PastSeries:
    if not history.points:
        return _nothing(None)
    last, start, since = history.points[-1], history.start, None
    changed = changed_facts(last.machine, steadied(last.machine, machine))
    if changed:
        return _nothing(because(Code.WHICH_RUNS, kind="machine", here=facts_text(changed), there=last.run_id))
    if history.breaks and history.regime == start:
        last_break = history.breaks[-1]
        since = because(Code.WHICH_RUNS, kind="since", here=last_break.text, there=last_break.run)
    elif start:
        since = because(Code.WHICH_RUNS, kind="acknowledged", here="", there=history.points[start].run_id)
    runs = [RunFileReport(one.run_id, None, iso(one.created)) for one in history.points[start:]]
    return PastSeries(history.levels.part(start), runs, since)


def _nothing(since: Reason | None) -> PastSeries:
    return PastSeries(RunLevels.exact([]), [], since)


def _why_unknown(treatment: TreatmentSummary, run: RunSummary, place: str, known: Iterable[Series]) -> Reason:
    """Return what the archive has instead of the series of a treatment."""
    others = [one for one in known if one.title == treatment.title]
    alike = [one for one in others if one.scenario == (run.scenario or "")]
    if hosts := sorted({one.hosts for one in alike if one.hosts != place}):
        there = listed([one_line(one) for one in hosts], 1)
        return because(Code.WHICH_RUNS, kind="hosts", here=one_line(place), there=there)
    here = one_line(run.scenario or "unknown") if others and not alike else ""
    kind = "parameters" if alike else "scenario" if others else "treatment"
    return because(Code.WHICH_RUNS, kind=kind, here=here, there="")
