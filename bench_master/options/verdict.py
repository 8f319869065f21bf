"""What the options of verdicts change of a scenario, and their words in help."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from bench_common.stats.block_types import as_stored
from bench_master.analysis.gates import check_verdict_options, requested_gates
from bench_master.analysis.run_summary import check_earlier_runs
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.scenario import Scenario

GATES_EPILOG: Final = """\
Gates: CONDITION is [LABEL=VALUE] [not] WORD [by N%]; WORD is slower, faster, worse, better, different or same:
  --fail-on slower                  exit code 1 if a treatment is shown to be slower than its baseline
  --require "not slower by 5%"      exit code 0 only if each is shown not to be 5 % slower; 4 if the data cannot tell
  --require "engine=podman same"    for some treatments only
"""


def apply_verdict_options(scenario: Scenario, options: VerdictOptions) -> Scenario:
    """Return the scenario with the baseline and margin of the command line, so that its stats file has them.

    Raises `UsageError` or `StatsFileError` where no treatment has the labels of the baseline or of a gate, or an
    earlier run cannot be read.
    """
    labels = [treatment.labels for treatment in scenario.treatments]
    treatments = [as_stored(treatment) for treatment in scenario.treatments]
    check_verdict_options(options, requested_gates(options, scenario.thresholds), labels, treatments)
    check_earlier_runs(options.earlier)
    if options.trend is not None:
        options.trend.check()
    return replace(
        scenario,
        baseline=options.baseline or scenario.baseline,
        margin=options.margin if options.margin is not None else scenario.margin,
        allow_failures=options.allow_failures or scenario.allow_failures,
    )
