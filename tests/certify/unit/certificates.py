"""Certificates of a machine, and the runs that they are made of."""

import math

from bench_features.certify.certificate import CertifiedRun, RunComparison, RunMeasure, RunSeries
from bench_features.certify.findings import certify_runs
from bench_features.certify.runs import Evidence, RunPlan

MACHINE = {
    "machine_id": "0123456789abcdef",
    "cpu_model": "A CPU",
    "cpu_threads": 2,
    "memory": 8 << 30,
    "kernel": "6.1",
}


def a_run(number=0, *, word="same", sd=0.03, level=0.0, estimate=0.0, began="2026-01-02T03:04:05+00:00", boot="b"):
    """Return what a run may have said."""
    return CertifiedRun(
        run_id=f"run-{number}",
        began=began,
        boot_id=boot,
        took_s=10.0,
        comparisons=(RunComparison("engine=native", "job.p50", word, math.exp(estimate), 0.9, 1.1),),
        measures=(RunMeasure("engine=native", "job.p50", "s", 10, estimate, sd, level),),
        series=(RunSeries("engine=native", 0.01, -0.01, 0.3, 10),),
    )


def certificate(runs, *, host="blade", jobs="`true`"):
    """Return the certificate of such runs."""
    last = Evidence(runs[-1], host, MACHINE, 10, 0.03)
    return certify_runs(runs, last, RunPlan(None, "s", jobs, (), None, "p"), 30)
