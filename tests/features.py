"""Which test files belong to which part of the product: what `script/test --all FEATURE...` runs.

The files below a folder with a feature's name are its own: `archive/unit/test_archive_rebuild.py`. Patterns name
further ones; they are those of `fnmatch`, of paths in this folder. A file may belong to several features, and belongs
to one at least; `unit` are all tests in folders of this name. `script/test` runs this module with whatever Python it
finds, before anything is installed: it needs the standard library alone.
"""

from __future__ import annotations

import difflib
import re
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

TESTS = Path(__file__).resolve().parent

FEATURES = {
    "alternate": ("two builds in drawn pairs of runs", ""),
    "archive": (
        "archives, their pages and trends, also over PostgreSQL",
        """
        unit/test_change_points.py unit/test_run_files.py live/unit/test_watched_trials.py
        unit/test_web_guard.py integration/test_hidden_features.py
        """,
    ),
    "certify": ("certificates of machines, from runs of equal treatments", ""),
    "charts": (
        "charts, in reports and on paper, and the HTML report in a browser",
        """
        unit/test_charts_*.py unit/test_report_html.py
        """,
    ),
    "cli": (
        "command lines: options, help, exit codes, messages, completion",
        """
        integration/test_command_programs.py integration/test_irregular_files.py
        integration/test_loaded_program.py unit/test_arguments.py unit/test_cli.py
        unit/test_command_extension.py unit/test_engine_commands.py unit/test_exit_codes.py
        unit/test_formatting.py unit/test_init.py unit/test_parse_output.py unit/test_progress_message.py
        unit/test_regular_files.py unit/test_resume_options.py unit/test_run_extension.py
        unit/test_run_files.py unit/test_safe_text.py unit/test_scenario_commands.py
        unit/test_show_output.py unit/test_startup.py unit/test_step_progress.py unit/test_terminal.py
        unit/test_timeout_options.py unit/test_treatment_selection.py unit/test_units.py unit/test_weigh.py
        integration/test_broken_packages.py
        integration/test_hostile_text.py integration/test_resource_limits.py integration/test_run_exits.py
        integration/test_run_imports.py integration/test_run_weigh.py integration/test_shell_completion.py
        """,
    ),
    "clusters": (
        "launchers: Kubernetes, Slurm, Docker Swarm",
        """
        fleet/integration/test_launchers.py
        """,
    ),
    "compat": (
        "bucketbench, ssbench, published studies: their files, results and figures",
        """
        unit/test_broken_dialect.py unit/test_published.py unit/test_scenario_aliases.py
        unit/test_scenario_mysql_on_docker.py unit/test_scenario_vm_docker_bench_servers.py
        charts/unit/test_study_charts.py
        """,
    ),
    "containerd": (
        "the engines containerd and CRI",
        """
        unit/test_containerd*.py unit/test_cri_messages.py unit/test_grpc.py unit/test_http2.py
        integration/test_ended_before_stop.py integration/test_engine_containerd_*.py
        integration/test_engine_cri.py
        """,
    ),
    "docker": (
        "the engines docker, docker-cli and podman",
        """
        unit/test_command_line.py unit/test_docker_*.py unit/test_endless_answers.py unit/test_endless_exports.py
        unit/test_engine_base.py unit/test_podman_*.py unit/test_registry_client.py
        integration/test_docker_runtimes.py integration/test_engine_command_line.py
        integration/test_engine_docker*.py integration/test_engine_podman.py integration/test_engine_pull.py
        integration/test_foreign_resources.py integration/test_run_docker.py
        """,
    ),
    "docs": (
        "README and docs: their commands, examples, links, and the site",
        """
        archive/unit/test_archive_documents.py unit/test_docs.py unit/test_extras.py
        unit/test_scenario_reference.py unit/test_terminal_recording.py
        unit/test_when_we_refuse.py integration/test_cookbook.py integration/test_readme.py
        integration/test_readme_commands.py
        integration/test_gate.py integration/test_scheduled_run.py integration/test_tutorial.py
        integration/test_release.py integration/test_wheel.py unit/test_changelog.py browser/test_site.py
        """,
    ),
    "doctor": (
        "what is known of a host: doctor, fingerprint, samples, diagnosis, swap",
        """
        unit/test_activity.py unit/test_before_run.py unit/test_contention.py unit/test_diagnosis.py
        unit/test_listeners.py
        unit/test_doctor.py unit/test_fingerprint.py unit/test_host*.py unit/test_pressure.py unit/test_run_checks.py
        unit/test_sampler.py unit/test_sampling.py unit/test_swap.py unit/test_worker_hosts.py
        integration/test_run_diagnosis.py integration/test_run_host*.py integration/test_run_pressure.py
        integration/test_swap_switch.py
        unit/test_cold_start.py unit/test_governor_setting.py integration/test_run_cold.py
        integration/test_host_settings_switch.py
        """,
    ),
    "engines": (
        "what all engines have in common: verbs, features, probes, clean-up, overhead, images",
        """
        unit/test_capabilities.py unit/test_compatibility.py unit/test_criu.py unit/test_daemons.py
        unit/test_directories.py unit/test_engine_*.py unit/test_image_*.py unit/test_leases.py
        unit/test_optional.py unit/test_overhead.py unit/test_owner.py unit/test_requirements.py
        unit/test_stray_processes.py unit/test_worker_cleanup.py integration/test_build_images.py
        integration/test_cgroup_hierarchies.py integration/test_cleanup.py
        integration/test_engine_capabilities.py integration/test_engine_checkpoint.py
        integration/test_engine_features.py integration/test_engine_probes.py
        integration/test_engine_settings.py integration/test_run_engines.py
        integration/test_run_installed_engine.py integration/test_run_labelled_engines.py
        integration/test_run_overhead.py integration/test_run_stats.py chaos/test_dead_engines.py
        unit/test_explain*.py unit/test_thread_sampler.py integration/test_run_explain.py
        chaos/test_hidden_leases.py chaos/test_two_daemons.py
        """,
    ),
    "failures": (
        "what is interrupted, lost, killed or cut off, and what is resumed",
        """
        unit/test_coordinator*.py unit/test_full_disk.py unit/test_history.py unit/test_journal.py
        unit/test_resume*.py unit/test_run_signals.py integration/test_orphaned_worker.py
        integration/test_orphans.py integration/test_repeated_hello.py integration/test_run_failures.py
        chaos/test_bundles_ahead.py chaos/test_disconnected_workers.py chaos/test_interrupts.py
        chaos/test_killed_services.py chaos/test_slow_connections.py
        chaos/test_lost_*.py objects/chaos/test_lost_object_runs.py chaos/test_resumed_*.py
        """,
    ),
    "fleet": (
        "hosts: inventory, SSH, installation, workers of other hosts, tunnels",
        """
        unit/test_agent.py unit/test_packing.py integration/test_hidden_features.py
        integration/test_host_environment.py chaos/test_two_masters.py
        """,
    ),
    "formats": ("reports that programs read: JUnit, OpenMetrics, Parquet, traces, job summaries", ""),
    "house": (
        "the rules of the code, the scripts, the benchmarks, and the tests' own tools",
        """
        integration/test_attention.py unit/test_deadlines.py unit/test_collection_check.py unit/test_docs.py
        integration/test_second_rounds.py unit/test_durations.py unit/test_features.py unit/test_house.py
        unit/test_structure.py unit/test_repeat_failed.py
        integration/test_benchmarks.py integration/test_scripts.py
        """,
    ),
    "jobs": (
        "plans, the coordinator and the workers' slots: who runs what, when, how often",
        """
        unit/test_coordinator*.py unit/test_early_stopping.py unit/test_fd_limit.py unit/test_job*.py
        unit/test_host_programs.py unit/test_local_workers.py unit/test_optional.py unit/test_plan.py
        unit/test_preflight.py unit/test_image_programs.py
        unit/test_profiling.py unit/test_recorder.py unit/test_rerun_baseline.py unit/test_results.py
        unit/test_sampling.py unit/test_slots.py unit/test_stopping.py integration/test_run_open.py
        integration/test_run_profile.py integration/test_run_sharing.py integration/test_toy_kind.py
        integration/test_run_until.py chaos/test_full_stats_disk.py chaos/test_many_workers.py
        chaos/test_shared_host.py
        """,
    ),
    "live": (
        "what a run shows while it goes on: progress and the live page",
        """
        unit/test_live_stats.py unit/test_progress_*.py unit/test_web_guard.py
        integration/test_progress_pty.py
        """,
    ),
    "native": (
        "the native engine and processes: their ends, exit codes, directories",
        """
        unit/test_delete_directory.py unit/test_long_output.py unit/test_native_labels.py
        integration/test_engine_native.py
        integration/test_run_cost.py integration/test_run_packing.py unit/test_job_cost.py
        unit/test_layout.py integration/test_drawn_layout.py
        integration/test_engine_processes.py integration/test_orphans.py integration/test_run_own_command.py
        """,
    ),
    "objects": (
        "object stores: Swift, S3, the no-op store, objects of jobs, their clean-up",
        """
        unit/test_coordinator_population.py integration/test_hidden_features.py
        compat/integration/test_run_ssbench.py
        """,
    ),
    "oci": (
        "the engines of OCI runtimes: crun, runc, runsc, youki",
        """
        unit/test_bundle_store.py unit/test_criu.py unit/test_delete_directory.py unit/test_oci*.py
        unit/test_oom_kills.py integration/test_engine_checkpoint.py integration/test_engine_oci*.py
        chaos/test_bundles_ahead.py chaos/test_odd_runtimes.py
        """,
    ),
    "reports": (
        "stats files, and every format of report",
        """
        unit/test_column_encoding.py unit/test_formatting.py unit/test_histogram.py
        unit/test_hostile_exports.py unit/test_notebook_frames.py unit/test_odd_*.py
        unit/test_open_system.py unit/test_published.py unit/test_report_*.py
        charts/integration/test_report_paper.py compat/unit/test_report_bucketbench.py
        formats/unit/test_report_github.py formats/unit/test_report_junit.py
        formats/unit/test_report_openmetrics.py formats/unit/test_report_parquet.py
        formats/unit/test_report_trace.py objects/unit/test_report_population.py unit/test_safe_text.py
        unit/test_first_page.py unit/test_neighbours.py unit/test_stats_*.py unit/test_subject.py unit/test_walks.py
        unit/test_recorded_pages.py unit/test_trust.py
        unit/test_within_trials.py integration/test_run_reports.py
        formats/integration/test_run_trace.py
        """,
    ),
    "scenario": (
        "scenarios: keys, types, schema, profiles, what is refused where",
        """
        unit/test_engine_arguments.py objects/unit/test_object_job.py unit/test_own_metrics.py
        unit/test_ready_verdicts.py unit/test_scenario_*.py objects/unit/test_scenario_objects.py
        unit/test_treatment_selection.py unit/test_units.py unit/test_weigh.py
        """,
    ),
    "services": (
        "servers beside jobs: here, on other hosts, prepared once",
        """
        unit/test_placement.py unit/test_prepared_containers.py unit/test_remote_services.py
        unit/test_scenario_services.py unit/test_service_pool.py fleet/integration/test_fleet_services.py
        integration/test_run_oci_services.py integration/test_run_prepared_files.py
        integration/test_run_remote_services.py integration/test_run_services.py
        """,
    ),
    "timing": (
        "clocks, stamps and their bounds, open arrivals, what disturbs a measurement",
        """
        integration/test_attention.py unit/test_deadlines.py unit/test_busy_*.py unit/test_clock*.py
        unit/test_kernel_stamps.py unit/test_loop_meter.py unit/test_open_*.py unit/test_stall.py
        unit/test_ceilings.py unit/test_harness_limits.py integration/test_run_ceiling.py
        unit/test_stamps.py unit/test_timer_fd.py unit/test_timing_warning.py unit/test_wake_ups.py
        integration/test_arrivals.py integration/test_clock_offsets.py
        integration/test_engine_docker_http.py integration/test_process_end_bounds.py
        integration/test_ready_waiter.py integration/test_run_open.py integration/test_run_wake_ups.py
        chaos/test_clock_steps.py chaos/test_saturated_host.py
        """,
    ),
    "unit": ("all tests that need nothing but Python, on as many lanes as there are processors", "*unit/*.py"),
    "verdicts": (
        "statistics, verdicts, comparisons, gates and trends",
        """
        unit/test_answer.py unit/test_between_runs.py unit/test_change_points.py unit/test_compare_runs.py
        unit/test_claims.py unit/test_confounds.py unit/test_early_stopping.py unit/test_gates.py unit/test_knee.py
        unit/test_ready_verdicts.py
        unit/test_stopping.py unit/test_thresholds.py archive/unit/test_trend_verdicts.py
        unit/test_trial_values.py unit/test_verdict*.py unit/test_when_we_refuse.py
        unit/test_within_trials.py integration/test_measured_programs.py integration/test_run_comparisons.py
        integration/test_run_until.py
        integration/test_run_verdicts.py
        """,
    ),
    "wire": (
        "between master and workers, and to stores: messages, keys, connections, hostile peers",
        """
        unit/test_connection_records.py unit/test_messages.py unit/test_ordered.py unit/test_pipe_channel.py
        unit/test_rendezvous.py unit/test_security_keys.py unit/test_sockets.py
        objects/unit/test_store_http.py integration/test_channel.py integration/test_connections.py
        integration/test_repeated_hello.py integration/test_run_tcp.py
        integration/test_unauthenticated_peers.py integration/test_wire*.py integration/test_zap.py
        chaos/test_connection_resets.py chaos/test_floods.py chaos/test_hostile_*.py chaos/test_intruder.py
        chaos/test_odd_workers.py
        """,
    ),
    "workloads": (
        "guest benchmarks: command lines, outputs, failures",
        """
        unit/test_own_metrics.py unit/test_parse_output.py unit/test_stated_params.py
        unit/test_workload_*.py integration/test_image_blogbench.py integration/test_run_blogs.py
        integration/test_run_own_command.py
        """,
    ),
}

WITHOUT_ENGINES = {
    "archive",
    "charts",
    "formats",
    "live",
    "reports",
    "scenario",
    "timing",
    "unit",
    "verdicts",
    "wire",
}
"""Features whose tests run plain processes: `script/test` starts no Docker Engine for them and builds no image."""

SWITCHES = re.compile(
    r"-[vqxsl]+|-r.+|--[^=]+=.*|--(lf|last-failed|ff|failed-first|nf|sw|stepwise|pdb|co|collect-only)"
)
"""Options of pytest after which a word stands for itself; after any other it may be the option's value."""


class SelectionError(Exception):
    """The words of a command line select nothing: one of them is unknown, or they exclude each other."""


@dataclass(frozen=True)
class Selection:
    """What a command line asks for: features, and options of pytest with their values."""

    features: list[str]
    options: list[str]

    @property
    def files(self) -> list[str]:
        """The test files of the features, from the root of the repository."""
        return sorted({file for feature in self.features for file in files_of(feature)})

    @property
    def needs_engines(self) -> bool:
        """Whether a test may need a Docker Engine."""
        return not WITHOUT_ENGINES.issuperset(self.features)


def all_files() -> list[str]:
    """Return the test files, from the root of the repository."""
    found = [path for pattern in ("*/test_*.py", "*/*/test_*.py") for path in TESTS.glob(pattern)]
    return sorted(path.relative_to(TESTS.parent).as_posix() for path in found)


def files_of(feature: str) -> list[str]:
    """Return the test files of a feature, from the root of the repository."""
    patterns = [f"{TESTS.name}/{pattern}" for pattern in (f"{feature}/*/test_*.py", *FEATURES[feature][1].split())]
    return [file for file in all_files() if any(fnmatch(file, pattern) for pattern in patterns)]


def select(words: list[str]) -> Selection:
    """Return what the words of a command line ask for; raise `SelectionError`. Paths are among the options."""
    features, options, path, rest = [], [], None, list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("-"):
            options.append(word)
            if rest and not rest[0].startswith("-") and not SWITCHES.fullmatch(word):
                options.append(rest.pop(0))
        elif word in FEATURES:
            features.append(word)
        elif Path(word.partition("::")[0]).exists():
            path = word
            options.append(word)
        else:
            nearest = difflib.get_close_matches(word, FEATURES, n=1)
            hint = f" (did you mean '{nearest[0]}'?)" if nearest else ""
            raise SelectionError(f"'{word}' is neither a feature nor a path{hint}")
    if features and path:
        raise SelectionError(f"'{features[0]}' is a feature and '{path}' a path: name one or the other")
    return Selection(features, options)


def main(words: list[str]) -> int:
    """List the features; given words, write for `lanes.sh` what they select: nothing if none of them is a feature."""
    if not words:
        width = max(map(len, FEATURES))
        sys.stdout.writelines(f"  {name:{width}}  {what}\n" for name, (what, _) in FEATURES.items())
        return 0
    try:
        selection = select(words)
    except SelectionError as error:
        sys.stderr.write(f"test: {error}\ntest: try: script/test --all --help\n")
        return 2
    if selection.features:
        sys.stdout.write("engines\n" if selection.needs_engines else "")
        sys.stdout.writelines(f"file {path}\n" for path in selection.files)
        sys.stdout.writelines(f"option {option}\n" for option in selection.options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
