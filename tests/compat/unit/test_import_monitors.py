"""The monitor logs of the study vm-docker-bench: counters without time stamps, read without invented values."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_common.errors import ParseError
from bench_features.compat.log_files import read_monitor

CPU = """\
x,user,nice,system,idle,iowait,irq,softirq,steal,guest,guest_nice
cpu,266,0,519,422490,26,33,21,0,0,0
cpu,276,0,539,422650,36,33,21,0,0,0
cpu,286,0,549,422820,30,33,21,0,0,0
"""
MEMORY = "total,used,free,shared,buffers,cached\n7989,327,7662,0,24,207\n7989,346,7643,0,24,215\n"
HEAD = (
    "major number,minor number,device name,reads completed successfully,reads merged,sectors read,"
    "time spent reading (ms),writes completed,writes merged,sectors written,time spent writing (ms),"
    "I/Os currently in progress,time spent doing I/Os (ms),weighted time spent doing I/Os (ms)\n"
)
DISK = HEAD + "".join(
    f"8,{minor},{name},1,0,{100 * step + minor},0,1,0,{50 * step},0,0,0,0\n"
    for step in range(3)
    for minor, name in ((0, "sda"), (1, "sda1"), (16, "sdb"))
)


def test_cpu_counters_become_shares_and_ticks():
    """Each reading but the first has the ticks since the previous one, and their share of all."""
    monitor = read_monitor(CPU)
    assert monitor.columns["cpu_user_ticks"] == [10.0, 10.0]
    assert monitor.columns["cpu_user_percent"][0] == pytest.approx(100 * 10 / 200)
    assert monitor.units["cpu_user_percent"] == "%"


def test_a_counter_that_runs_backwards_is_left_out_and_reported():
    """The I/O wait counter can decrease: that is not a negative share of time."""
    monitor = read_monitor(CPU)
    assert math.isnan(monitor.columns["cpu_iowait_percent"][1])
    assert monitor.caveats == ("CPU counters ran backwards in 1 of 3 readings: left out there",)


def test_a_complete_proc_stat_is_read():
    """The line of all CPUs together counts; those of single CPUs, interrupts and the rest do not."""
    text = "user,nice,system,idle,iowait,irq,softirq,steal\n"
    text += "".join(f"cpu,{n},0,0,{n},0,0,0,0,0,0\ncpu0,1,0,0,1,0,0,0,0,0,0\nintr,5,6\nctxt,9\n" for n in (10, 20))
    assert read_monitor(text).columns["cpu_user_percent"] == [50.0]


def test_memory_excludes_buffers_and_cache():
    """``free -m`` counted both as used at that time, in MiB."""
    monitor = read_monitor(MEMORY)
    assert monitor.columns["memory_used_bytes"] == [(327 - 24 - 207) * 2**20, (346 - 24 - 215) * 2**20]


def test_disks_are_counted_once():
    """Partitions are part of their disks; sectors have 512 bytes."""
    monitor = read_monitor(DISK)
    assert monitor.columns == {"disk_read_bytes": [102400.0] * 2, "disk_written_bytes": [51200.0] * 2}


def test_readings_have_no_time_column():
    """The logs have no time stamps."""
    for text in (CPU, MEMORY, DISK):
        assert not any("time" in name or "_ns" in name for name in read_monitor(text).columns)


@pytest.mark.parametrize("text", ["", "hello\n", "26.1\n26.2\n", "user,name\n1,2\n"])
def test_other_texts_are_not_monitor_logs(text):
    """They are left to the workload's parser."""
    assert read_monitor(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CPU + "disk,1\n", "line 5: not a line of /proc/stat: 'disk,1'"),
        (CPU + "cpu,1,2\n", "line 5: expected 8 counters"),
        (MEMORY + "7989,x,1,2,3,4\n", "line 4: 'x' is not a whole number"),
        (MEMORY + "7989\n", "line 4: expected 6 numbers"),
        (HEAD + "8,0\n", "line 2: not a line of /proc/diskstats"),
        (DISK + "8,0,sda,1,0,9,0,1,0,9,0,0,0,0\n" * 2, "readings are missing: sda has 5, sdb has 3"),
    ],
)
def test_an_unexpected_line_is_refused(text, message):
    """The error for a truncated or mixed log names the line."""
    with pytest.raises(ParseError) as caught:
        read_monitor(text)
    assert str(caught.value).startswith(message)


@given(st.sampled_from(["", CPU, MEMORY, DISK, HEAD]), st.text(alphabet=st.characters(codec="utf-8")))
def test_arbitrary_text_raises_only_parse_errors(beginning, text):
    """Any file is a monitor's log, none, or refused."""
    with contextlib.suppress(ParseError):
        read_monitor(beginning + text)


@pytest.mark.parametrize("text", [CPU + f"cpu,{'9' * 5000},0,0,0,0,0,0,0\n", CPU + "cpu,\u0663,0,0,0,0,0,0,0\n"])
def test_impossible_counters_are_refused(text):
    """Digits of other scripts, and more digits than a counter has."""
    with pytest.raises(ParseError, match="is not a whole number"):
        read_monitor(text)


@pytest.mark.parametrize(
    ("whole", "cut", "reason"),
    [
        (CPU, "cpu,296,0,5", "'cpu,296,0,5'"),
        (MEMORY, "7989,3", "'7989,3'"),
        (DISK, "8,0,sda,1,0", "'8,0,sda,1,0'"),
        (DISK, "8,0,sda,1,0,900,0,1,0,900,0,0,0,0\n8,1,sda1,1", "'8,1,sda1,1'"),
        (DISK, "8,0,sda,1,0,900,0,1,0,900,0,0,0,0\n", "misses disks"),
    ],
)
def test_an_incomplete_last_reading_is_left_out_and_reported(whole, cut, reason):
    """A monitor runs until it is killed: its readings before that count."""
    read, full = read_monitor(whole + cut), read_monitor(whole)
    assert {name: list(map(str, values)) for name, values in read.columns.items()} == {
        name: list(map(str, values)) for name, values in full.columns.items()
    }
    assert reason in read.caveats[-1]
    assert "left out" in read.caveats[-1]


def test_table_headers_are_read_like_any_csv():
    """Quotes, capitals, blanks and the line ends of another system change nothing."""
    text = '"User", Nice,"System",Idle,IOWait,IRQ,SoftIRQ,Steal\r\n0,0,0,0,0,0,0,0\r\n50,0,0,50,0,0,0,0\r\n'
    assert read_monitor(text).columns["cpu_user_percent"] == [50.0]
