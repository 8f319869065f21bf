"""The sub-commands of `bench-master`: one module for each, named like it, with dashes as underscores."""

from typing import Final

COMMANDS: Final = {
    "archive": "keep runs in an archive, find them again, compare them, and see since when something changed",
    "build-images": "build the images that scenarios use, with debootstrap if no registry is reachable",
    "cleanup-containers": "remove what finished runs left on this machine (only what carries Weighbridge's label)",
    "compare": "compare runs with each other: two builds, a run with earlier ones, or the history of a folder",
    "completion": "print a script that completes sub-commands, options and names in a shell",
    "convert-scenario": "convert a bucketbench definition or an ssbench scenario, and list what cannot be converted",
    "doctor": "check whether this machine is fit to measure, and advise what to fix",
    "fetch-logs": "fetch the logs of the workers of an inventory",
    "import-results": "make a stats file of benchmark outputs measured elsewhere, to report and compare like a run",
    "init": "write a commented scenario to start from, by three questions or three options",
    "keygen": "make keys for the master and its workers, list and revoke them",
    "kill-workers": "stop the workers of an inventory, or those that wait for this master",
    "list-engines": "list the engines that are usable on this machine, and why the others are not",
    "list-scenarios": "list the ready-made scenarios with time, disk and images; run-scenario -f NAME runs one",
    "list-workers": "list the workers that wait for this master, and their state",
    "list-workloads": "list the guest benchmarks, or the parameters and metrics of one",
    "man-page": "print the manual page in the format of man(7)",
    "parse-output": "print the metrics in a guest benchmark's output as JSON",
    "report-scenario": "print the report of a stats file",
    "run-scenario": "run a scenario on local or remote workers, save the stats file and print the report",
    "serve": "show the archive in a browser: runs, comparisons, series and hosts, read-only",
    "show-output": "print what the tool of a job printed, as it is kept in the stats file",
    "start-workers": "start workers on the hosts of an inventory, where they wait for this master",
    "validate-scenario": "check scenarios and list all of their errors, or print the JSON Schema of the format",
    "weigh": "measure one command under some engines, without a scenario file",
}
"""What each sub-command does, for ``--help``: to list them, none has to be loaded."""
