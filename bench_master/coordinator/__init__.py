"""The coordinator: a pure state machine that decides who runs which job, and how each job ended.

`events` is what can happen, `actions` what is to be done about it, `roster` who takes part, `shares` what each of
them holds, `course` the trials and the account of their jobs, `policy` the deadlines, `machine` the decisions. No
socket, clock, thread or disk is inside: the shell of `bench_master.run` feeds events with the time, and carries the
actions out.
"""

from bench_master.coordinator.machine import Coordinator
from bench_master.coordinator.messages import Policy

__all__ = ["Coordinator", "Policy"]
