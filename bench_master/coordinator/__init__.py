"""The coordinator: a pure state machine that decides who runs which job, and how each job ended.

`messages` are its events, its actions and the policy, `roster` the workers of a run, `share` one worker's part of a
trial, `trial_scheduler` the trials and the account of their jobs, `machine` the decisions. It uses no socket, clock,
thread or disk: the shell in `bench_master.run` feeds events with the time, and carries the actions out.
"""

from bench_master.coordinator.machine import Coordinator
from bench_master.coordinator.policy import Policy

__all__ = ["Coordinator", "Policy"]
