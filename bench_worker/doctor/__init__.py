"""The doctor: is this machine fit to measure, and what to do if not? Its checks are functions of `checks`."""

from bench_worker.doctor import checks
from bench_worker.doctor.base import CHECKS, Check, Finding, HostSnapshot, Level, capture, run_checks

__all__ = ["CHECKS", "Check", "Finding", "HostSnapshot", "Level", "capture", "checks", "run_checks"]
