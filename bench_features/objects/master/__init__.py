"""The master's part of jobs on object stores: keys of a scenario, options of the command line, lines of a plan."""
