#!/usr/bin/env python3
"""Index insertion: rows at random places of three secondary indexes, as fast as one connection takes them.

Each row is a purchase: when, at which register, by whom, of what, for how much. The primary key grows, so that the
table itself is written in order, and its three secondary indexes are not: once they no longer fit the server's cache
most insertions cost a read. The rate is printed for each so many rows, because its fall is the result.

Query processes, if any are asked for, read a few rows by a random one of the indexes meanwhile, counted apart.

Output: a header, a row for each report, and ``OperationResult`` after the last. Times are in seconds. The last row
holds the rates of the whole run (``cum_``) and of its last interval (``last_``), which tell different things.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HEADER = "#rows #seconds #total_seconds cum_ips table_size last_ips #queries cum_qps last_qps"

REGISTERS, CUSTOMERS, PRODUCTS, HIGHEST_PRICE = 1000, 100_000, 10_000, 500.0
QUERY_ROWS = 10
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"

TABLE = """
CREATE TABLE purchases (
    purchase_id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    bought_at DATETIME NOT NULL,
    register_id INT NOT NULL,
    customer_id INT NOT NULL,
    product_id INT NOT NULL,
    price FLOAT NOT NULL,
    remark VARCHAR(4000) NOT NULL,
    KEY by_price (price, customer_id),
    KEY by_register (register_id, price, customer_id),
    KEY by_time (price, bought_at, customer_id)
) ENGINE = InnoDB
"""
INSERT = "INSERT INTO purchases (bought_at, register_id, customer_id, product_id, price, remark) VALUES "
QUERIES = (
    (
        "SELECT price, customer_id FROM purchases FORCE INDEX (by_price) WHERE price >= {price:.2f} "
        "ORDER BY price, customer_id LIMIT {rows}"
    ),
    (
        "SELECT register_id, price, customer_id FROM purchases FORCE INDEX (by_register) "
        "WHERE register_id = {register} AND price >= {price:.2f} ORDER BY price, customer_id LIMIT {rows}"
    ),
    (
        "SELECT price, bought_at, customer_id FROM purchases FORCE INDEX (by_time) WHERE price >= {price:.2f} "
        "ORDER BY price, bought_at, customer_id LIMIT {rows}"
    ),
)


@dataclass(frozen=True)
class Mark:
    """How far a run had come at a time."""

    at_s: float
    rows: int
    queries: int


def report_row(began: Mark, last: Mark, now: Mark) -> str:
    """Return the row of the report that says how far it is `now`, after the report before at `last`."""
    whole_s, part_s = now.at_s - began.at_s, now.at_s - last.at_s
    fields = (
        f"{now.rows}",
        f"{part_s:.3f}",
        f"{whole_s:.3f}",
        f"{now.rows / whole_s:.1f}",
        f"{now.rows}",
        f"{(now.rows - last.rows) / part_s:.1f}",
        f"{now.queries}",
        f"{now.queries / whole_s:.1f}",
        f"{(now.queries - last.queries) / part_s:.1f}",
    )
    return " ".join(fields)


def values(draw: random.Random, count: int, remark_bytes: int) -> str:
    """Return the values of `count` rows, as they stand after ``VALUES``. Nothing in them needs quoting."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    remark = "".join(draw.choices(LETTERS, k=remark_bytes))
    return ",".join(
        f"('{stamp}',{draw.randrange(REGISTERS)},{draw.randrange(CUSTOMERS)},{draw.randrange(PRODUCTS)},"
        f"{draw.random() * HIGHEST_PRICE:.2f},'{remark}')"
        for _ in range(count)
    )


def connect(options: argparse.Namespace) -> Any:
    """Return a connection; every statement is a transaction."""
    try:
        import pymysql
    except ImportError:
        raise SystemExit("iibench: the driver PyMySQL is missing: pip install 'weighbridge[iibench]'") from None
    return pymysql.connect(
        host=options.host,
        port=options.port,
        unix_socket=options.socket,
        user=options.user,
        password=options.password,
        database=options.database,
        autocommit=True,
        connect_timeout=10,
    )


def query(options: argparse.Namespace, seed: int, count: Any, stop: Any) -> None:
    """Read rows by a random index, again and again, until `stop` is set; `count` is how often."""
    draw = random.Random(seed)  # noqa: S311  places in a table, no secret
    with connect(options) as connection, connection.cursor() as cursor:
        while not stop.is_set():
            price, register = draw.random() * HIGHEST_PRICE, draw.randrange(REGISTERS)
            cursor.execute(draw.choice(QUERIES).format(price=price, register=register, rows=QUERY_ROWS))
            cursor.fetchall()
            count.value += 1


def insert(options: argparse.Namespace, cursor: Any, counts: Sequence[Any], check: Any) -> Iterator[str]:
    """Insert all rows; yield a row of the report for each so many of them, and for the last."""
    draw = random.Random(options.seed)  # noqa: S311  as above
    began = last = Mark(time.monotonic(), 0, 0)
    rows = 0
    while rows < options.max_rows:
        due = min(options.max_rows, (rows // options.rows_per_report + 1) * options.rows_per_report)
        batch = min(options.rows_per_commit, due - rows)
        cursor.execute(INSERT + values(draw, batch, options.data_bytes))
        rows += batch
        if rows == due:
            check()
            now = Mark(time.monotonic(), rows, sum(count.value for count in counts))
            yield report_row(began, last, now)
            last = now


def run(options: argparse.Namespace) -> None:
    """Make the table, insert, and read meanwhile if asked to."""
    with connect(options) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS purchases")
        cursor.execute(TABLE)
        start = multiprocessing.get_context("fork")
        stop = start.Event()
        # One writer each, so that no lock is needed.
        counts = [start.Value("Q", 0, lock=False) for _ in range(options.query_threads)]
        readers = [
            start.Process(target=query, args=(options, options.seed + 1 + number, count, stop), daemon=True)
            for number, count in enumerate(counts)
        ]
        for reader in readers:
            reader.start()

        def check() -> None:
            for reader in readers:
                if reader.exitcode is not None:
                    raise SystemExit(f"iibench: a query process ended with exit code {reader.exitcode}")

        sys.stdout.write(f"{HEADER}\n")
        for row in insert(options, cursor, counts, check):
            sys.stdout.write(f"{row}\n")
            sys.stdout.flush()
        stop.set()
        for reader in readers:
            reader.join(30)
        check_readers(readers)
        cursor.execute("SELECT COUNT(*) FROM purchases")
        (stored,) = cursor.fetchone()
        if stored != options.max_rows:
            raise SystemExit(f"iibench: {stored} rows are stored, not {options.max_rows}")
    sys.stdout.write("Done\n")


def check_readers(readers: Sequence[Any]) -> None:
    """End with a reason where a reader did not end well."""
    for reader in readers:
        if reader.exitcode != 0:
            raise SystemExit(f"iibench: a query process did not end well: {reader.exitcode}")


def options_of(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options that the command line gives."""
    parser = argparse.ArgumentParser(prog="iibench", description="Index insertion into MySQL or MariaDB.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=3306)
    parser.add_argument("--socket", help="a Unix socket, in place of host and port")
    parser.add_argument("--user", default="bench")
    parser.add_argument("--password", default="")
    parser.add_argument("--database", default="bench", help="its table `purchases` is created again")
    parser.add_argument("--max-rows", type=int, default=1_000_000, help="rows to insert")
    parser.add_argument("--rows-per-report", type=int, default=100_000)
    parser.add_argument("--rows-per-commit", type=int, default=1000, help="rows in each INSERT, one transaction each")
    parser.add_argument("--query-threads", type=int, default=0, help="processes that read meanwhile")
    parser.add_argument("--data-bytes", type=int, default=10, help="length of each row's remark")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(words)


def main() -> None:
    """Run; whatever the server says ends it with exit code 1 and its words."""
    options = options_of()
    try:
        run(options)
    except OSError as error:
        raise SystemExit(f"iibench: {error}") from error
    except Exception as error:
        if not type(error).__module__.startswith("pymysql"):
            raise
        raise SystemExit(f"iibench: {type(error).__name__}: {error}") from error


if __name__ == "__main__":
    main()
