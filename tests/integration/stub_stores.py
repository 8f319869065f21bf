"""The stub store of `benchmarks/stub_store.c`: objects in memory, known times, faults on request."""

import sys

from busybox_image import skip_or_fail
from places import ROOT

sys.path.append(str(ROOT / "benchmarks"))

from stub_store import ACCOUNT, CANNOT_BUILD, TOKEN, StubStore, build

__all__ = ["ACCOUNT", "TOKEN", "StubStore", "start_stub"]


def start_stub():
    """Return a running stub, a context that ends it; the test is skipped, or fails in CI, without a C compiler."""
    program = build() or skip_or_fail(CANNOT_BUILD)
    return StubStore(program)
