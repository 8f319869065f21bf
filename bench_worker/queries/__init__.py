"""Queries that `bench-worker` answers about its machine, one module each: FLAG, HELP, Options, run."""
