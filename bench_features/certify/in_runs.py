"""The certificates of a run's hosts: their ids go into the header of its stats file, whether they hold or not."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from bench_common.errors import UsageError
from bench_common.host_info import Fact
from bench_common.stats.block_types import StoredCertificate
from bench_master.run_extension import RunExtension

log = logging.getLogger(__name__)


class CertifiedOptions(Struct, frozen=True):
    """There are none."""


class CertifiedRuns(RunExtension):
    """Looks for the certificate of each host as its run begins."""

    Options = CertifiedOptions

    def certificates(self, hosts: Mapping[str, Mapping[str, Fact]]) -> Sequence[StoredCertificate]:
        """Return the certificate of each host that has one, with why it does not hold any more."""
        from bench_features.certify.certificate import kept_file, load, machine_of

        found: list[StoredCertificate] = []
        for host, fingerprint in hosts.items():
            machine = machine_of(fingerprint)
            path = kept_file(str(fingerprint.get("hostname") or host), machine)
            if not path.exists():
                continue
            from bench_features.certify.page import clause

            try:
                certificate = load(path)
            except UsageError as error:
                log.warning("%s", error)
                continue
            if certificate is not None:
                found.append(
                    {
                        "host": host,
                        "id": certificate.id,
                        "created": certificate.created,
                        "says": clause(certificate),
                        "void": certificate.why_void(machine),
                    }
                )
        return found


CERTIFIED: Final = CertifiedRuns()
