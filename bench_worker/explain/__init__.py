"""Explains where the time of operations goes: samples of threads beside a traced trial, and what they waited for."""
