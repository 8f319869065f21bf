"""Charts as PNG and PDF: bytes, the same whatever fonts the host has, and clear errors."""

import io
import struct
import subprocess
import sys

import pytest
from builders import lifecycle_run
from deadlines import END_S

from bench_common.errors import UsageError
from bench_common.stats.reader import StatsFile
from bench_features.charts import WIDE, paper
from bench_features.charts.layout import ChartChoice
from bench_master.cli import run_command_line
from bench_master.reports import ReportSource, report_named
from bench_master.reports.charts import ChartOptions


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return lifecycle_run(tmp_path_factory.mktemp("paper") / "run.stats.gz")


def test_a_chart_is_a_png_or_a_pdf(run, tmp_path):
    """The file that is named has the picture: pixels of twice the chart's width, or one page."""
    png, pdf = tmp_path / "forest.png", tmp_path / "forest.pdf"
    words = [
        "report-scenario",
        "-s",
        str(run),
        "--chart",
        "forest",
        "--format",
        f"png={png}",
        "--format",
        f"pdf={pdf}",
    ]
    assert run_command_line([*words, "--format", "json"]) == 0
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG\r\n")
    assert struct.unpack(">I", data[16:20]) == (2 * WIDE,)
    assert pdf.read_bytes().startswith(b"%PDF-")
    assert pdf.read_bytes().count(b"/Type /Page\n") == 1


def test_a_pipe_has_the_bytes_alone(run):
    """Standard output that is no terminal gets the file."""
    command = [sys.executable, "-m", "bench_master", "report-scenario", "-s", str(run), "--format", "png"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=END_S)
    assert done.stdout.startswith(b"\x89PNG")
    assert done.stdout.endswith(b"IEND\xaeB`\x82")


def test_a_text_or_a_terminal_is_refused(run):
    """A picture is no text, and the error says what to do."""
    with pytest.raises(UsageError, match="name a file: --format png=FILE"):
        report_named("png").write(ReportSource(StatsFile(run)), io.StringIO())


def test_without_the_extra_the_error_says_what_to_install(run, tmp_path, monkeypatch, capsys):
    """The library is missing before anything is read, and the file that was named stays as it was."""
    monkeypatch.setattr(paper, "find_spec", lambda name: None)
    target = tmp_path / "forest.pdf"
    target.write_text("kept")
    assert run_command_line(["report-scenario", "-s", str(run), "--format", "pdf", "-f", str(target)]) == 2
    said = capsys.readouterr().err
    assert "--format pdf: needs vl-convert-python" in said
    assert "pip install 'weighbridge[paper]'" in said
    assert target.read_text() == "kept"


def test_a_chart_without_data_leaves_no_file(run, tmp_path, capsys):
    """What cannot be drawn is refused as in SVG, and nothing is written."""
    target = tmp_path / "heat.png"
    command = ["report-scenario", "-s", str(run), "--format", "png", "--chart", "heat", "-f", str(target)]
    assert run_command_line(command) == 2
    assert "no chart heat" in capsys.readouterr().err
    assert not target.exists()


def test_the_font_is_one_that_the_rasteriser_carries(run, monkeypatch):
    """The font of the page is not asked for: it may be missing on the host that writes the file."""
    seen = []
    monkeypatch.setattr("vl_convert.svg_to_pdf", lambda svg: seen.append(svg) or b"%PDF")
    with io.TextIOWrapper(io.BytesIO()) as out:
        report_named("pdf").write(
            ReportSource(StatsFile(run), chart_options=ChartOptions(ChartChoice("forest"))), out
        )
    assert 'font-family="Liberation Sans' in seen[0]
    assert "DejaVu" not in seen[0]
    assert "var(" not in seen[0]
