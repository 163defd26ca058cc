"""What jobs used that were dropped since: a row for each day, user and tenant, which is added to in
the transaction that drops them."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

Sums = dict[str, float]
"""Amounts by name; those that are 0 are left out."""


class Key(NamedTuple):
    """Whose amounts: days are counted from 1970-01-01, UTC; "" is nobody, or no tenant."""

    day: int
    user: str
    tenant: str


Bill = dict[Key, Sums]

LAYOUT = """CREATE TABLE IF NOT EXISTS ledger (
  day INTEGER NOT NULL, user TEXT NOT NULL, tenant TEXT NOT NULL, amounts TEXT NOT NULL,
  PRIMARY KEY (day, user, tenant)) WITHOUT ROWID"""
KEY = "day = ? AND user = ? AND tenant = ?"


def add(file: sqlite3.Connection, bill: Bill) -> None:
    """Add amounts to the rows that there are; the caller is in a transaction."""
    file.execute(LAYOUT)
    for (day, *names), amounts in bill.items():
        key = (day, *(name.encode(errors="replace").decode() for name in names))
        row = file.execute(f"SELECT amounts FROM ledger WHERE {KEY}", key).fetchone()
        sums: Sums = {} if row is None else json.loads(row[0])
        for name, amount in amounts.items():
            if amount:
                sums[name] = sums.get(name, 0.0) + amount
        file.execute("INSERT OR REPLACE INTO ledger VALUES (?, ?, ?, ?)", (*key, json.dumps(sums)))


def rows(
    file: sqlite3.Connection, first: int, last: int, user: str | None = None
) -> Iterator[tuple[Key, Sums]]:
    """Yield the rows of these days, of one user where one is named."""
    if not _is_there(file):
        return
    query = "SELECT * FROM ledger WHERE day BETWEEN ? AND ? AND (?3 IS NULL OR user = ?3)"
    for *key, amounts in file.execute(query, (first, last, user)):
        yield Key(*key), json.loads(amounts)


def digest(file: sqlite3.Connection) -> str | None:
    """Return a hash of all rows, None where there is no ledger yet."""
    if not _is_there(file):
        return None
    hashed = hashlib.sha256()
    for row in file.execute("SELECT * FROM ledger ORDER BY day, user, tenant"):
        hashed.update(json.dumps(row).encode())
    return hashed.hexdigest()[:32]


def _is_there(file: sqlite3.Connection) -> bool:
    return bool(
        file.execute("SELECT count(*) FROM sqlite_master WHERE name = 'ledger'").fetchone()[0]
    )
