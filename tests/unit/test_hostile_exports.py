"""A run in which every text is hostile, in every export format: none of them carries its markup.

Each file is read with a parser of its kind: Python's of HTML, XML, CSV and JSON, those of Prometheus and CommonMark.
"""

import csv
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from io import StringIO

import numpy as np
import pytest
from builders import S, StatsBuilder, footer, header, host, treatment_wire
from markdown_it import MarkdownIt
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

import weighbridge
from bench_common.records import ErrorRecord, MetricRecord, Outcome, ticket_of
from bench_master.cli import run_command_line
from bench_master.reports import report_formats

LONG = "w" * 10_000
EVIL = (
    "<script>alert(1)</script> ]]> --> </style></title> <img src=x onerror=alert(2)> [a](https://evil.example)"
    " ![b](c) | x | @root #1 `code` **b** {{7*7}} ${x} =cmd|'/c calc'!A1 \"' \\ &amp; \u202egnp.exe\u2066 \x00"
    "\x1b]0;owned\x07\x1b[2J\x9b31m \u2028\ufffe a\r\nb\n# EOF\n# TYPE evil gauge\nevil 1\n"
)
NAME = EVIL + "w" * 500
"""A name; those of versions and the like may have 1,024 characters."""
RECORD = EVIL + "w" * 3500
"""A text of a record: those have up to 4,000 characters."""
EVIL += LONG
FORMATS = set(report_formats())
GITHUB_LIMIT = 1 << 20


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """Return the stats file, and each report of it by the name of its format, all written by one command."""
    folder = tmp_path_factory.mktemp("hostile")
    metrics = {
        f"m{RECORD}": {"unit": EVIL, "direction": "higher", "primary": True},
        "mib_per_second": {"unit": f"MiB/s {EVIL}", "direction": EVIL},
    }
    treatments = [
        treatment_wire(
            place,
            {"environment": EVIL, "engine": engine, "job": EVIL, EVIL: EVIL, "size": size, "threads": 1 + place},
            (f"a{EVIL}", "b"),
            metrics,
        )
        | {"jobs_per_trial": 8}
        for place, (engine, size) in enumerate((("docker", EVIL), (EVIL, EVIL), ("docker", "=2+2"), (EVIL, "=2+2")))
    ]  # fmt: skip
    trials = [(index, block, block == 0) for block in range(6) for index in range(4)]
    head = header(treatments, trials, argv=["bench-master", EVIL], versions={NAME: NAME}, run_id=NAME)
    head["scenario"] |= {"name": EVIL, "description": EVIL, "path": EVIL, "text": EVIL, "notes": [EVIL]}
    head["thresholds"] = ["jobs.failed == 0", "operations.job.p95_s < 1us"]
    builder = StatsBuilder(folder / "evil.stats.gz", head)
    builder.add(
        "host", host(0, host=EVIL, environment=EVIL, engines={NAME: NAME}, fingerprint={NAME: EVIL, "kernel": EVIL})
    )
    now, ticket, random = 1001 * S, 0, np.random.default_rng(2)
    for number, (treatment, _, _) in enumerate(trials):
        builder.add("event", {"at_ns": now, "kind": "trial-begin", "trial": number, "workers": [0]})
        rows = [
            {"ticket": ticket_of(ticket + k), "treatment": treatment, "trial": number, "start_ns": now + k * S,
             "end_ns": now + k * S + int(random.integers(S // 2, S)),
             "outcome": Outcome.FAILED if k == 3 else Outcome.DONE}
            for k in range(8)
        ]  # fmt: skip
        builder.add_jobs(*rows)
        builder.add_operations(
            *(
                {key: row[key] for key in ("ticket", "treatment", "trial", "start_ns")}
                | {"operation": k, "duration_ns": S // 4, "ok": row["outcome"] == Outcome.DONE}
                for row in rows for k in range(2)
            )
        )  # fmt: skip
        builder.writer.errors([ErrorRecord(rows[3]["ticket"], treatment, number, RECORD, RECORD, RECORD)])
        builder.writer.metrics(
            [MetricRecord(rows[0]["ticket"], treatment, number, name, 5.0 + number) for name in metrics]
        )
        now, ticket = now + 9 * S, ticket + 8
        builder.add("event", {"at_ns": now, "kind": "trial-end", "trial": number, "reason": EVIL})
    times = np.linspace(1001 * S, now, 12).astype(np.int64)
    busy = {f"cpu_{name}_percent": np.full(len(times), 9.0) for name in ("user", "system", "iowait", "steal")}
    columns = {"time_ns": times, "interval_ns": np.full(len(times), 10 * S), EVIL: np.zeros(len(times)), **busy}
    for source in ("host", f"engine:{EVIL}"):
        builder.writer.samples(
            0, source, columns, dict.fromkeys(columns, EVIL) | {"time_ns": "ns", "interval_ns": "ns"}
        )
    counts = {"planned": ticket, "done": ticket - len(trials), "failed": len(trials), "lost": 0, "aborted": 0}
    foot = footer(
        counts=counts,
        status="complete",
        warnings=[EVIL],
        remarks=[EVIL],
        reasons=[EVIL],
        duration_s=(now - 1001 * S) / 1e9,
    )
    stats = builder.close(foot)
    files = {name: folder / name for name in sorted(FORMATS)}
    wanted = [f"--format={name}={path}" for name, path in files.items()]
    assert run_command_line(["-q", "report-scenario", "-s", str(stats), "-f", str(folder / "x"), *wanted]) == 1
    return stats, files


def test_every_format_was_written(exports):
    """Nothing in a text keeps a report from being written."""
    _, files = exports
    assert {name for name, path in files.items() if path.exists()} == FORMATS
    assert len(files) >= 15


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_no_report_can_steer_a_terminal(exports, name):
    """Only printable characters and line ends are in a report, and no line is one that a value made up."""
    text = exports[1][name].read_text(encoding="utf-8")
    assert [line for line in text.replace("\t", " ").split("\n") if not line.isprintable()] == []
    assert [line for line in text.split("\n") if line.startswith(("# EOF\n#", "evil 1", "# TYPE evil"))] == []


class Tags(HTMLParser):
    """Collects elements, attributes and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.shown = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.shown.append(data)


def test_the_page_has_no_element_of_the_run(exports):
    """One script, which is ours; no handler, no image, no address but our own."""
    text = exports[1]["html"].read_text(encoding="utf-8")
    page = Tags(text)
    assert page.tags.count("script") == 1
    assert page.tags.count("style") == 1
    assert not {"img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert [name for name, _ in page.attributes if name.startswith("on")] == []
    assert [
        value
        for name, value in page.attributes
        if name in ("href", "src", "action") and not value.startswith(("#", "data:,"))
    ] == []
    assert "<script>alert(1)</script>" in "".join(page.shown)
    assert len(text) < 2_000_000
    for svg in re.findall(r"<svg .*?</svg>", text, re.DOTALL):
        ET.fromstring(svg)


def test_a_notebook_shows_no_element_of_the_run(exports):
    """The same for what a cell shows: the picture is an image whose text is escaped."""
    page = Tags(weighbridge.load(exports[0])._repr_html_())
    assert not {"script", "iframe", "style", "svg", "a"} & set(page.tags)
    assert [value[:26] for name, value in page.attributes if name == "src"] in ([], ["data:image/svg+xml;base64,"])
    assert [name for name, _ in page.attributes if name.startswith("on")] == []


@pytest.mark.parametrize("name", ["svg", "junit"])
def test_xml_is_well_formed(exports, name):
    """And has no element but our own."""
    root = ET.parse(exports[1][name]).getroot()
    tags = {node.tag.rpartition("}")[2] for node in root.iter()}
    assert not tags & {"script", "img", "foreignObject", "image", "a", "style"}
    assert [key for node in root.iter() for key in node.attrib if key.startswith("on") or "href" in key] == []


def test_the_textfile_is_valid_for_both_parsers_of_prometheus(exports):
    """No family, label or end of file is one that a value made up."""
    text = exports[1]["openmetrics"].read_text(encoding="utf-8")
    for families in (
        list(openmetrics.text_string_to_metric_families(text)),
        list(text_string_to_metric_families(text)),
    ):
        assert families
        assert all(family.name.startswith("weighbridge_") for family in families)
        assert all(
            len(value) < 2_500 for family in families for sample in family.samples for value in sample.labels.values()
        )
    assert text.endswith("# EOF\n")


@pytest.mark.parametrize("name", ["github", "markdown"])
def test_markdown_has_no_markup_of_the_run(exports, name):
    """No raw HTML, link, image, mention or row of a table that a value made up; GitHub's limit is kept."""
    text = exports[1][name].read_text(encoding="utf-8")
    assert len(text.encode()) < GITHUB_LIMIT
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    every = [*tokens, *(child for token in tokens for child in token.children or ())]
    raw = {token.content.strip() for token in every if token.type in ("html_block", "html_inline")}
    assert {each for each in raw if not re.fullmatch(r"(<!-- -->|</?(details|summary|sub|br)/?>|\s)+", each)} == set()
    assert {token.type for token in every} & {"link_open", "image", "heading_open"} <= {"heading_open"}
    assert re.findall(r"(?<![\w;/])@\w", text) == []


@pytest.mark.parametrize("name", ["json", "jsonl"])
def test_json_has_every_text_as_it_was(exports, name):
    """It is data: nothing is cut or changed in a report for programs."""
    text = exports[1][name].read_text(encoding="utf-8")
    found = [json.loads(line) for line in (text.splitlines() if name == "jsonl" else [text])]
    if name == "json":
        assert found[0]["scenario"]["name"] == EVIL


@pytest.mark.parametrize("name", ["csv", "samples", "ssbench-csv"])
def test_tables_have_the_cells_that_they_declare(exports, name):
    """No value begins a row, a column or a formula."""
    rows = list(csv.reader(StringIO(exports[1][name].read_text(encoding="utf-8"))))
    if name != "ssbench-csv":
        assert {len(row) for row in rows} == {len(rows[0])}
    assert [cell for row in rows[1:] for cell in row if cell[:1] in ("=", "@")] == []
