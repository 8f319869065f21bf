"""Questions that `bench-worker` answers about its machine, one module each: FLAG, HELP, configure, answer."""
