"""Labels of processes, for what tests make and others clean up."""

from msgspec.structs import replace

from bench_worker.owner import Owner, own_label


def dead_label():
    """Return the label of a process that has ended: it had the number of this one before."""
    return str(replace(Owner.parse(own_label()), start_ticks=1))
