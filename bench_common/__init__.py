"""The contract that master and worker share: words, messages, records, clocks, keys and the stats file."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("weighbridge")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+uninstalled"
