"""Builds the report document from a stats file; every report format renders it.

Figures follow four rules. Warm-up trials are counted and excluded. Failed operations and failed jobs are counted
and excluded from every latency. Percentiles are nearest-rank, and exact unless `percentiles_exact` says otherwise.
A metric's n counts trials: a trial of several jobs gives their mean. docs/reference/report-fields.rst has all fields.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import asdict, replace

from bench_common.errors import UsageError
from bench_common.histogram import nearest_rank
from bench_common.stats.account import differing_counts
from bench_common.stats.block_types import (
    Header,
    StoredFooter,
    StoredHost,
    StoredMetric,
    definition_of,
    does_one_operation,
)
from bench_common.stats.reader import StatsFile
from bench_common.thresholds import (
    required_percentiles,
)
from bench_master.analysis.claims import find_claims
from bench_master.analysis.compare_runs import add_earlier_runs
from bench_master.analysis.comparisons import build_verdicts, why_no_verdict
from bench_master.analysis.gates import (
    check_verdict_options,
    document_gates,
    evaluate_failures,
    evaluate_thresholds,
    with_gates,
)
from bench_master.analysis.harness_limits import limit_warnings
from bench_master.analysis.published import published_section
from bench_master.analysis.report_types import (
    CertificateReport,
    ErrorReport,
    HostReport,
    ImportedFileReport,
    ImportReport,
    MasterReport,
    ReportDocument,
    RunReport,
    ScenarioReport,
    TotalsReport,
)
from bench_master.analysis.run_checks import series_warnings
from bench_master.analysis.subject import describe_subject
from bench_master.analysis.trend_verdicts import add_trend
from bench_master.analysis.trust import judge_trust
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.analysis.verdict_types import VerdictsReport
from bench_master.formatting import plural
from bench_master.plan import is_host_ceiling
from bench_master.run_data.aggregate import JOB, RESPONSE, Aggregator, TrialMetric
from bench_master.run_data.host_samples import compare_to_baseline
from bench_master.run_data.measured import LookMaker, MeasuredRun, MetricsLook, SamplesLook, trial_values
from bench_master.run_data.open_system import open_warnings
from bench_master.run_data.packed_hosts import add_host_slopes
from bench_master.run_data.packed_jobs import PackedJobs
from bench_master.run_data.percentiles import ExactPercentiles, Key, LatencySeries, in_seconds
from bench_master.run_data.run_types import LoopReport
from bench_master.run_data.store_course import StoreCourse, over_all_sizes
from bench_master.run_data.transfers import StoreContext, error_kinds_of
from bench_master.run_data.treatment_types import (
    JobCounts,
    MetricReport,
    OperationReport,
    SampleReport,
    TreatmentReport,
    TrialCounts,
)
from bench_master.run_data.validity import ranges, timing_error, timing_warning, timing_warnings
from bench_master.scenario.model import is_again
from bench_master.verdicts.diagnosis import MIN_DRIFT

FORMAT: Final = "weighbridge-report"
VERSION: Final = 2

STANDARD_PERCENTILES: Final = (50.0, 95.0, 99.0)
DEFAULT_PERCENTILE: Final = 95.0
MIN_TAIL_SAMPLES: Final = 1000
"""With fewer values p99 depends on a handful of them, and is marked."""

MASTER: Final = -1
DEFAULT_OPTIONS: Final = VerdictOptions()


def percentile_name(percentile: float) -> str:
    """Return a percentile's field name without a unit, such as ``p95`` or ``p99.9``."""
    return f"p{percentile:g}"


def build_document(
    stats: StatsFile, pctile: float = DEFAULT_PERCENTILE, options: VerdictOptions = DEFAULT_OPTIONS
) -> ReportDocument:
    """Read the file and return the report document, see `document_of`; raise `StatsFileError` without a header."""
    _check_percentile(pctile)
    return document_of(MeasuredRun(stats), pctile, options)


def document_of(
    run: MeasuredRun,
    pctile: float = DEFAULT_PERCENTILE,
    options: VerdictOptions = DEFAULT_OPTIONS,
    also: Collection[LookMaker] = (),
) -> ReportDocument:
    """Return the report document of a run; `pctile` (0..100) is added to the usual ones.

    The parts of the run that are asked for later are in `also`: of a large file one more walk makes all parts.

    A damaged or unfinished file gives a report on the readable part, and `incomplete` and `damage` say so. Raises
    `UsageError` for an invalid percentile or baseline.
    """
    _check_percentile(pctile)
    header, ledger = run.stats.header, run.sums
    percentiles = sorted({*STANDARD_PERCENTILES, pctile, *required_percentiles(header.thresholds)})
    compared = _has_values_of_interest(run)
    wants_trials = compared or options.earlier or options.trend is not None
    claims = find_claims(header) if compared else None
    others = [] if claims is None else claims.other_measures(header)
    run.prepare(
        {
            MetricsLook,
            SamplesLook,
            PackedJobs,
            StoreCourse,
            *({trial_values} if wants_trials else ()),
            *others,
            *also,
        },
        percentiles,
    )
    treatments = _treatments(run, percentiles, pctile)
    gates = document_gates(header, options)
    labels = [each.treatment for each in treatments]
    check_verdict_options(options, gates, labels, ledger.treatments, list(ledger.hosts.values()))
    table = run.trials(options.failures) if compared else None
    if claims is not None:
        tables = {one.name: run.part(one).table(ledger, options.failures) for one in others}
        claims = replace(claims, tables=tables)
    verdicts = build_verdicts(header, ledger, table, options, claims) if table is not None else None
    series = [] if table is None or verdicts is not None or header.noop else series_warnings(ledger, table)
    if options.earlier:
        verdicts = add_earlier_runs(verdicts, run, options)
    elif options.trend is not None and options.look is None:
        verdicts = add_trend(verdicts, run, options)
    if verdicts is not None:
        verdicts = with_gates(verdicts, gates, treatments)
    return _document(run, pctile, treatments, verdicts, series, options)


def _check_percentile(pctile: float) -> None:
    if not 0 <= pctile <= 100:  # noqa: PLR2004
        raise UsageError(f"percentile {pctile:g}: a number from 0 to 100 expected, such as 95 or 99.9")


def _has_values_of_interest(run: MeasuredRun) -> bool:
    """Return whether the trials' values say something: there are two treatments, or enough trials for a drift."""
    measured = sum(not is_host_ceiling(one.labels) for one in run.sums.treatments)
    return measured >= (1 if len(run.header.trials) >= MIN_DRIFT else 2)


def _document(
    run: MeasuredRun,
    pctile: float,
    treatments: list[TreatmentReport],
    verdicts: VerdictsReport | None,
    series: Sequence[str],
    options: VerdictOptions,
) -> ReportDocument:
    header, ledger, damage = run.header, run.sums, run.damage
    footer, scenario = ledger.footer or StoredFooter(), header.scenario
    totals = _totals(ledger, whole=run.is_whole)
    incomplete = _incomplete_reasons(ledger, totals, damage)
    # The interval of a verdict is widened by the timing error: it limits no word.
    compared = verdicts is not None and bool(verdicts.comparisons)
    late = timing_warnings(treatments)
    hosts = sorted(ledger.hosts.items())
    document = ReportDocument(
        format=FORMAT,
        version=VERSION,
        stats_file=str(run.path),
        run=_run(header, ledger),
        scenario=ScenarioReport(
            name=scenario.name,
            description=scenario.description,
            path=scenario.path,
            document=scenario.document,
            subject=""
            if header.noop or header.imported
            else describe_subject(ledger.treatments, [host.host for _, host in hosts if host.host]),
        ),
        hosts=[_host(ledger, worker, body) for worker, body in hosts],
        master=MasterReport(samples=_samples(ledger, MASTER), loop=_loop(ledger, MASTER)),
        pctile=pctile,
        run_state="damaged" if damage else "incomplete" if incomplete else "complete",
        incomplete=incomplete,
        damage=damage,
        can_continue=bool(incomplete)
        and (damage is None or run.stats.is_cut_short)
        and header.imported is None
        and str(run.path) != "-",
        warnings=[
            *_each_once(footer.warnings),
            *_spoilt_trials(run),
            *_warnings(ledger),
            *ledger.course.warnings(),
            *(() if compared else late),
            *ledger.neighbours.warnings(ledger.hosts),
            *ledger.disturbances.warnings(),
            *open_warnings(treatments),
            *(() if compared or header.noop else limit_warnings(treatments)),
            *series,
        ],
        remarks=[
            *footer.remarks,
            *ledger.watches.remarks(run.spans),
            *ledger.disturbances.pressure.remarks(),
            *(late if compared else ()),
        ],
        totals=totals,
        treatments=treatments,
        errors=_errors(ledger),
        published=published_section(header, treatments),
        thresholds=[
            *evaluate_thresholds(treatments, header.thresholds),
            # What an incomplete run lacks counts for more than its failed jobs.
            *(() if incomplete else evaluate_failures(treatments, header, options)),
        ],
        verdicts=verdicts,
        no_verdict_reason=why_no_verdict(header, treatments, options) if verdicts is None else None,
        traced=ledger.traced.report(len(treatments)),
    )
    return replace(document, trust=judge_trust(document))


def _each_once(texts: Iterable[str]) -> list[str]:
    """Return warnings, those that differ only in what stands in parentheses once, with how often there was one."""
    found: dict[str, list[str]] = {}
    for text in texts:
        found.setdefault(_ASIDE.sub("", text), []).append(text)
    return [own[0] if len(own) == 1 else f"{len(own)} times: {own[0]}" for own in found.values()]


_ASIDE: Final = re.compile(r"\([^)]*\)")


def _run(header: Header, ledger: Aggregator) -> RunReport:
    footer = ledger.footer or StoredFooter()
    return RunReport(
        run_id=header.run_id,
        created=header.created,
        ended=footer.ended,
        status=footer.status,
        noop=header.noop,
        measures="elsewhere" if header.imported else "harness-ceiling" if header.noop else "scenario",
        imported=_imported(header.imported),
        order=header.order,
        seed=header.seed,
        argv=list(header.argv),
        versions=dict(header.versions),
        sampling_interval_s=header.sampling_interval_s,
        resumes=ledger.course.resumes,
        actual_order=ledger.course.actual_order(),
        certificates=[CertificateReport(**one) for one in header.certificates],
    )


def _imported(origin: Mapping[str, Any] | None) -> ImportReport | None:
    if not origin:
        return None
    names = ImportedFileReport.__struct_fields__
    files = [ImportedFileReport(*(file[name] for name in names)) for file in origin["files"]]
    return ImportReport(at=origin.get("at"), workload=origin.get("workload"), files=files)


def _host(ledger: Aggregator, worker: int, body: StoredHost) -> HostReport:
    return HostReport(
        worker=body.worker,
        worker_id=body.worker_id,
        host=body.host,
        environment=body.environment,
        slots=body.slots,
        engines=body.engines,
        programs=body.programs,
        fingerprint=body.fingerprint,
        clock=None if body.clock is None else asdict(body.clock),
        samples=_samples(ledger, worker),
        loop=_loop(ledger, worker),
        clock_checks=ledger.clocks.report(worker),
        findings=ledger.neighbours.found(worker),
    )


def _samples(ledger: Aggregator, worker: int) -> dict[str, SampleReport]:
    return ledger.loads[worker].samples() if worker in ledger.loads else {}


def _loop(ledger: Aggregator, worker: int) -> LoopReport | None:
    return ledger.loads[worker].loop() if worker in ledger.loads else None


def _totals(ledger: Aggregator, *, whole: bool) -> TotalsReport:
    def count(name: str) -> int:
        return sum(outcome[name] for outcome in ledger.outcomes.values())

    footer = ledger.footer or StoredFooter()
    left_out = sum(
        outcome["failed"] for index, outcome in ledger.outcomes.items() if _skip_reason(ledger, index) is not None
    )
    done, failed, lost, aborted = count("done"), count("failed") - left_out, count("lost"), count("aborted")
    busy_s = sum(ledger.busy_ns(index) for index in ledger.outcomes) / 1e9
    planned = ledger.plan.jobs() if footer.counts.planned is None else footer.counts.planned
    ran = ledger.all_outcomes["done"] + ledger.all_outcomes["failed"]
    return TotalsReport(
        jobs=done + failed + lost + aborted,
        done=done,
        failed=failed,
        left_out=left_out,
        lost=lost,
        aborted=aborted,
        # The footer also counts the jobs of trials that never began.
        not_started=max(count("not_started"), footer.not_started) if whole else None,
        warmup=count("warmup"),
        planned=planned,
        missing=max(0, planned - ran) if isinstance(planned, int) else None,
        duration_s=ledger.duration_s,
        busy_s=busy_s,
        jobs_per_s=done / busy_s if busy_s else None,
    )


def _incomplete_reasons(ledger: Aggregator, totals: TotalsReport, damage: str | None) -> list[str]:
    """Return every reason why the run is incomplete; empty if it is complete."""
    reasons = []
    if damage:
        reasons.append(f"the stats file is damaged: {damage}")
    if ledger.footer is None:
        reasons.append("the stats file has no footer: the run was killed or is still running, or the file is cut off")
    elif ledger.footer.status not in ("complete", "incomplete"):
        reasons.append(f"the run was {ledger.footer.status}")
    # Every report says this word itself; it is a reason where nothing else is known.
    is_incomplete = ledger.footer is not None and ledger.footer.status == "incomplete"
    # If all that are missing never started, the number of the missing ones, which every report has, says it.
    if totals.lost or not totals.missing or totals.missing != totals.not_started:
        reasons += _jobs_not_done(ledger, totals)
    if not reasons or not totals.missing or totals.missing != totals.not_started:
        reasons += _trials_not_run(ledger)
    if reasons or is_incomplete:
        # A worker that reconnected in time loses no job; its absence is among the run's own warnings.
        reasons += [f"lost {worker}" for worker in ledger.lost_workers]
    return reasons or ["the run was incomplete"] * is_incomplete


def _spoilt_trials(run: MeasuredRun) -> Iterator[str]:
    """Yield which trials are in no figure, as a worker was lost in them."""
    for index, treatment in enumerate(run.sums.treatments):
        own = {trial: who for trial, who in run.spoilt.items() if run.header.trials[trial][0] == index}
        if own:
            rounds = ranges(sorted(run.header.trials[trial][1] + 1 for trial in own))
            yield (
                f"{treatment.title}: left out of all figures and verdicts: {plural(len(own), 'trial')} (round "
                f"{rounds}), in which a worker was lost: {'; '.join(dict.fromkeys(own.values()))}"
            )


def _jobs_not_done(ledger: Aggregator, totals: TotalsReport) -> list[str]:
    """Return how many jobs were lost, aborted, and never started."""
    unfinished = ((totals.lost, "lost"), (totals.aborted, "aborted"))
    reasons = [f"{count:,} of the jobs {outcome}" for count, outcome in unfinished if count]
    # Those of begun trials are already among the lost and aborted.
    among = sum(outcome["not_started"] for outcome in ledger.outcomes.values())
    if among:
        reasons.append(f"{among:,} of these never started")
    if (totals.not_started or 0) > among:
        reasons.append(f"{(totals.not_started or 0) - among:,} more never started")
    return reasons


def _trials_not_run(ledger: Aggregator) -> list[str]:
    """Return which trials did not run: of one treatment with its title, of several as one sum."""
    counts = [(one.title, *ledger.trials_of(index)) for index, one in enumerate(ledger.treatments)]
    cut = [(title, planned, planned - ran) for title, planned, ran in counts if planned > ran]
    if not cut:
        return []
    text = f"{sum(missing for *_, missing in cut)} of {plural(sum(planned for _, planned, _ in cut), 'trial')}"
    where = f"not run: {cut[0][0]}" if len(cut) == 1 else f"of {len(cut)} treatments not run"
    return [f"{text} {where}"]


def _warnings(ledger: Aggregator) -> list[str]:
    """Return the contradictions within the file."""
    found = []
    if ledger.strangers:
        found.append(f"excluded: {plural(ledger.strangers, 'job')} of treatments that the header does not list")
    if ledger.unlisted_operations:
        found.append(f"excluded: {plural(ledger.unlisted_operations, 'operation')} that the header does not list")
    if (ledger.footer or StoredFooter()).status != "complete":
        # Of a complete run this is damage.
        found += differing_counts(ledger.footer or StoredFooter(), ledger.all_outcomes)
    names = {worker: str(body.worker_id) for worker, body in ledger.hosts.items()}
    found += ledger.clocks.warnings(names)
    outside = ledger.jobs_outside_trial()
    if outside:
        found.append(
            f"jobs of {plural(outside, 'trial')} lie outside the master's time window for the trial by more than the "
            "clock uncertainty: their times are invalid"
        )
    # What a resumed run left has the names of one of its parts.
    found += ledger.populations.warnings(ledger.treatments, None if ledger.course.resumes else ledger.run_id)
    if ledger.ungrouped_errors:
        found.append(f"{plural(ledger.ungrouped_errors, 'error')} of further kinds not listed")
    return found


def _treatments(run: MeasuredRun, percentiles: Sequence[float], pctile: float) -> list[TreatmentReport]:
    ledger, exact = run.sums, run.percentiles(percentiles)
    found = []
    for index, treatment in enumerate(ledger.treatments):
        if is_again(treatment.labels):
            continue  # it is the run's noise floor, and no treatment of its own
        planned, ran = ledger.trials_of(index)
        busy_s = ledger.busy_ns(index) / 1e9
        p99_s, max_s = timing_error(ledger.uncertainties[index])
        loops, declared = ledger.loops[index], treatment.metrics
        operations = {
            name: _operation((index, name), series, exact, percentiles)
            for name, series in _treatment_series(ledger, index)
        }
        metrics = {
            name: _metric(
                [one for _, one in sorted(ledger.trial_metrics(index, name).items())],
                declared.get(name, StoredMetric()),
                pctile,
                primary=declared.get(name, StoredMetric()).primary or treatment.primary == name,
            )
            for name in ledger.metric_names(index)
        }
        jobs_per_s = ledger.outcomes[index]["done"] / busy_s if busy_s else None
        load = ledger.open.report(index)
        found.append(
            TreatmentReport(
                title=treatment.title,
                treatment=dict(treatment.labels),
                concurrency=treatment.concurrency,
                skipped=_skip_reason(ledger, index),
                trials=TrialCounts(
                    planned=planned,
                    run=ran,
                    left_out=sum(run.header.trials[trial][0] == index for trial in run.spoilt),
                ),
                jobs=_jobs(
                    ledger.outcomes[index],
                    ledger.plan.jobs(index),
                    whole=run.is_whole,
                    skipped=_skip_reason(ledger, index) is not None,
                ),
                busy_s=busy_s,
                jobs_per_s=jobs_per_s,
                timing_error_p99_s=p99_s,
                timing_error_max_s=max_s,
                open_load=load,
                operations=operations,
                metrics=metrics,
                objects=ledger.transfers.report(
                    index, treatment, ledger.series, _store_context(run, index, exact, percentiles)
                ),
                worker_busy_share=loops.busy_share,
                worker_lag_max_s=loops.lag_max_s,
                host_wake_up_max_s=loops.wake_up_max_s,
                timing_warning=timing_warning(p99_s, operations, loops, treatment.concurrency),
                disturbances=ledger.disturbances.found.get(index, []),
                overhead=run.engine_costs.report(
                    index, sum(ledger.outcomes[index][kind] for kind in ("done", "failed"))
                ),
                host_cpu=run.host_cpu.report(index),
                pressure=ledger.disturbances.pressure.report(index),
                packing=ledger.packings.report(index, ledger.hosts, run.part(PackedJobs)),
                population=ledger.populations.report(index),
                harness=ledger.harness.report(index, jobs_per_s, load),
            )
        )
    return add_host_slopes(compare_to_baseline(found, ledger.baseline), _threads(ledger.hosts.values()))


def _store_context(
    run: MeasuredRun, index: int, exact: ExactPercentiles, percentiles: Sequence[float]
) -> StoreContext:
    """Return what is known of the operations of a treatment over objects of all classes."""
    ledger = run.sums
    treatment = ledger.treatments[index]
    every = {**ledger.series, **ledger.totals} if does_one_operation(treatment) else {}
    return StoreContext(
        busy_s=ledger.busy_ns(index) / 1e9,
        operations={
            name: _operation((owner, name), series, exact, percentiles)
            for (owner, name), series in every.items()
            if owner == index and name == over_all_sizes(name)
        },
        error_kinds=error_kinds_of(
            (group.operation, group.kind, group.treatments[index]) for group in ledger.errors.values()
        ),
        course=run.part(StoreCourse),
        urls=definition_of(treatment).job.get("endpoints") or ledger.populations.endpoints(index),
    )


def _threads(hosts: Iterable[StoredHost]) -> dict[str | int, int]:
    """Return how many CPUs the host of each worker has, where that is known."""
    found = {host.worker_id: (host.fingerprint or {}).get("cpu_threads") for host in hosts}
    return {name: count for name, count in found.items() if name is not None and type(count) is int and count > 0}


def _jobs(counts: Mapping[str, int], planned: int | None, *, whole: bool, skipped: bool) -> JobCounts:
    done, failed, lost, aborted = (counts[name] for name in ("done", "failed", "lost", "aborted"))
    # The jobs of an optional treatment did not fail for want of its image: they are left out.
    left_out, failed = (failed, 0) if skipped else (0, failed)
    return JobCounts(
        total=done + failed + lost + aborted,
        done=done,
        failed=failed,
        left_out=left_out,
        lost=lost,
        aborted=aborted,
        not_started=counts["not_started"] if whole else None,
        warmup=counts["warmup"],
        planned=planned,
        missing=None if planned is None else max(0, planned - done - failed - left_out),
    )


def _skip_reason(ledger: Aggregator, index: int) -> str | None:
    """Return why an optional treatment was skipped; None if it was not, or is not optional."""
    return ledger.absent[index] if ledger.is_skipped(index) else None


def _treatment_series(ledger: Aggregator, index: int) -> list[tuple[str, LatencySeries]]:
    """Return the series of a treatment: its operations in their order, the whole job last."""
    own = [(name, series) for (treatment, name), series in ledger.series.items() if treatment == index]
    return sorted(own, key=lambda item: (JOB, RESPONSE).index(item[0]) + 1 if item[0] in (JOB, RESPONSE) else 0)


def _operation(
    key: Key, series: LatencySeries, exact: ExactPercentiles, percentiles: Iterable[float]
) -> OperationReport:
    histogram = series.histogram
    found = {percentile: exact.value(key, percentile) for percentile in percentiles}
    return OperationReport(
        n=histogram.n,
        errors=series.errors,
        mean_s=in_seconds(histogram.mean),
        stddev_s=in_seconds(series.moments.stddev),
        min_s=in_seconds(histogram.min),
        percentiles_s={percentile_name(percentile): in_seconds(value) for percentile, (value, _) in found.items()},
        max_s=in_seconds(histogram.max),
        slowest_job=series.slowest_job,
        percentiles_exact=all(is_exact for _, is_exact in found.values()),
        p99_marked=0 < histogram.n < MIN_TAIL_SAMPLES,
    )


def _metric(trials: list[TrialMetric], declared: StoredMetric, pctile: float, *, primary: bool) -> MetricReport:
    unit, direction, name = declared.unit, declared.direction, percentile_name(pctile)
    if not trials:
        none = dict.fromkeys(("median", "mean", "stddev", "min", "max", "worst_job"))
        return MetricReport(unit=unit, direction=direction, primary=primary, n=0, percentiles={name: None}, **none)
    values = np.array([trial.mean for trial in trials])
    worst = int(values.argmin()) if direction == "higher" else int(values.argmax())
    rank = nearest_rank(len(values), Fraction(repr(float(pctile))) / 100)
    return MetricReport(
        unit=unit,
        direction=direction,
        primary=primary,
        n=len(trials),
        median=float(np.median(values)),
        mean=_mean(values),
        stddev=float(values.std(ddof=1)) if len(values) > 1 else None,
        min=float(values.min()),
        percentiles={name: float(np.sort(values)[rank - 1])},
        max=float(values.max()),
        worst_job=trials[worst].job,
    )


def _mean(values: npt.NDArray[np.float64]) -> float:
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(values / len(values))


def _errors(ledger: Aggregator) -> list[ErrorReport]:
    known = len(ledger.treatments)
    return [
        ErrorReport(
            operation=group.operation,
            kind=group.kind,
            count=group.count,
            warmup=group.warmup,
            treatments=[ledger.treatments[index].title for index in sorted(group.treatments) if index < known],
            job=group.job,
            message=group.message,
        )
        for group in sorted(ledger.errors.values(), key=lambda group: -group.count)
    ]
