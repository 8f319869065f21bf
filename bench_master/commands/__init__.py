"""The sub-commands of `bench-master`, one module each: NAME, HELP, configure(parser), run(arguments)."""
