"""crun: a runtime in C, podman's usual one."""

from __future__ import annotations

from typing import ClassVar, Final

from bench_worker.engines.base import OperationFailed
from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.oci import OciEngine

_FEATURES_S: Final = 1.0


class CrunEngine(OciEngine):
    """`crun <https://github.com/containers/crun>`_, see `bench_worker.engines.oci`."""

    operations: ClassVar[frozenset[str]] = OciEngine.operations - {"stats"}
    name: ClassVar[str] = "crun"
    log_option: ClassVar[str] = "file:{}"
    advice: ClassVar[str] = "install it (`apt-get install crun`)"

    @classmethod
    def unable_to_save(cls, program: str) -> str:
        """Ask crun whether it was built with CRIU, which few distributions do, and then CRIU itself."""
        try:
            features = CommandLine(program).errand(_FEATURES_S).ask("--version").text
        except OperationFailed as error:
            return f"`{program} --version` failed: {error}"
        return super().unable_to_save(program) if "+CRIU" in features else "this crun was built without CRIU"
