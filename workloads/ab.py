"""ab: requests to a web server from a few connections, each of which waits for its answer before it asks again.

That is a closed model: a server that stalls is asked less, so the requests that would have waited are never made, and
latencies look better than any visitor would find them. Its `caveat` says so in every report.

The service webbench: a web server with one page of twelve bytes that a program makes (Apache and PHP).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from bench_common.errors import ParseError, UsageError
from workloads.ab_output import read_run
from workloads.base import Metric, Parameter, Service, Step, Workload
from workloads.line_reader import parse_stated_params

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import Scalar
    from workloads.line_reader import Patterns

NAME: Final = "webbench"
URL: Final = f"http://{{{NAME}.authority}}/index.php"
"""Where the page is; the worker fills host and port in."""

PAGE_BYTES: Final = len("Hello World!")

WEBBENCH: Final = Service(
    NAME,
    image="weighbridge/webbench",
    command=("serve-webbench",),
    port=80,
    ready=("ready-webbench",),
    binary="apache2",
)

PROGRAMS: Final = {"serve-webbench": "webbench/serve-webbench", "ready-webbench": "webbench/ready-webbench"}


_PARAM_PATTERNS: Final[Patterns] = {
    "concurrency": (r"Concurrency Level: +(\d{1,9})", int),
    "path": (r"Document Path: +(\S+)", str),
    "keepalive": (r"Keep-Alive requests: +(\d{1,15})", lambda _: True),
}
"""The parameters that the output states; it does not state the intended number of requests."""


class Ab(Workload):
    """ApacheBench, against a web server of the job's own."""

    name: ClassVar[str] = "ab"
    summary: ClassVar[str] = "a web server's answers, closed model: Apache and PHP in a container of their own (ab)"
    image: ClassVar[str] = "weighbridge/ab"
    binary: ClassVar[str] = "ab"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("requests", "int", 10_000, "requests to make", minimum=1, maximum=100_000_000),
        Parameter("concurrency", "int", 1, "connections that ask side by side", minimum=1, maximum=20_000),
        Parameter("keepalive", "bool", default=False, help="ask again over the same connection"),
        Parameter("timeout", "duration", 30.0, "whole seconds to wait for an answer", "s", minimum=1, maximum=86400),
        Parameter("warmup", "int", 0, "requests before the run that are not counted", minimum=0, maximum=100_000_000),
    )
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("requests_per_second", "1/s", "higher", "requests answered a second (closed model)"),
        Metric("transfer_kib_per_second", "KiB/s", "higher", "bytes received a second, headers included"),
        Metric("total_time_s", "s", "lower", "time that all requests took"),
        Metric("requests", "requests", "higher", "requests that were answered"),
        Metric("latency_mean_ms", "ms", "lower", "mean time of a request: concurrency over the rate (closed model)"),
        Metric("connect_mean_ms", "ms", "lower", "mean time to connect, whole ms"),
        Metric("processing_mean_ms", "ms", "lower", "mean time from there to the end of the answer, whole ms"),
        Metric("waiting_mean_ms", "ms", "lower", "mean time from there to the first byte of the answer, whole ms"),
        *(
            Metric(f"latency_p{rank}_ms", "ms", "lower", f"{rank} % of requests were faster (closed model), whole ms")
            for rank in (50, 66, 75, 80, 90, 95, 98, 99)
        ),
        Metric("latency_max_ms", "ms", "lower", "the slowest request (closed model), whole ms"),
    )
    tool_option_names: ClassVar[Mapping[str, str]] = {
        "n": "requests",
        "c": "concurrency",
        "k": "keepalive",
        "s": "timeout",
    }
    caveat: ClassVar[str] = (
        "a closed model: each connection waits for its answer before it asks again, so a server that stalls is asked "
        "less, and latencies leave out the requests that would have waited"
    )
    run_start_pattern: ClassVar[str | None] = r"This is ApacheBench, Version "
    services: ClassVar[tuple[Service, ...]] = (WEBBENCH,)
    programs: ClassVar[Mapping[str, str]] = PROGRAMS

    def steps(self, params: Mapping[str, Scalar]) -> tuple[Step, ...]:
        """Return warm-up and run, the run is timed and parsed; raise `UsageError` for what ab refuses."""
        requests, concurrency, warmup = (int(str(params[name])) for name in ("requests", "concurrency", "warmup"))
        timeout_s = float(str(params["timeout"]))
        if not timeout_s.is_integer():
            raise UsageError(f"{self.name} takes whole seconds: timeout cannot be {timeout_s:g} s")
        for name, count in (("requests", requests), ("warmup", warmup)):
            if 0 < count < concurrency:
                raise UsageError(
                    f"{self.name}: {count} {name} are fewer than the {concurrency} connections of concurrency; "
                    f"make it at least {concurrency}"
                )
        argv = (
            self.binary,
            "-c",
            str(concurrency),
            "-s",
            f"{timeout_s:.0f}",
            *(("-k",) if params["keepalive"] else ()),
        )
        steps = [Step("run", (*argv, "-n", str(requests), URL))]
        if warmup:
            steps.insert(0, Step("warmup", (*argv, "-n", str(warmup), URL), timed=False, parse=False))
        return tuple(steps)

    def verify(self, params: Mapping[str, Scalar], metrics: Mapping[str, float]) -> None:
        """Raise `ParseError` where fewer requests were answered than were to be made."""
        if metrics["requests"] != params["requests"]:
            raise ParseError(f"{metrics['requests']:.0f} of {params['requests']} requests were answered")

    def parse(self, text: str) -> dict[str, float]:
        """Return the metrics of one complete run by ab 2.3 in which every request was answered as it should be.

        Raises `ParseError` where requests failed, were answered with a status other than 2xx, or where the answers do
        not have the length that the first one had: ab itself ends with 0 then.
        """
        run = read_run(text)
        return {
            "requests_per_second": run.requests_per_second,
            "transfer_kib_per_second": run.kib_per_second,
            "total_time_s": run.time_s,
            "requests": float(run.requests),
            "latency_mean_ms": run.mean_ms,
            **{f"{name}_mean_ms": mean for name, mean in run.parts_ms.items()},
            **{f"latency_p{rank}_ms": value for rank, value in run.percentiles_ms.items()},
            "latency_max_ms": run.longest_ms,
        }

    def stated_params(self, text: str) -> dict[str, Scalar]:
        """Return connections, the page's path and, of a run that ended, whether connections were used again."""
        stated = parse_stated_params(text, _PARAM_PATTERNS)
        return {"keepalive": False, **stated} if "concurrency" in stated else stated
