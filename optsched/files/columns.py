"""Tables by column: CSV, and Parquet where a library for it is installed."""

import importlib
import io
from collections.abc import Collection
from typing import Any

from . import csv_text

Columns = dict[str, list[Any]]
"""Values by name of the column, None for nothing; all of one length."""


def columns_csv(table: Columns) -> str:
    """Return columns as text, a line of names first."""
    return csv_text([table, *zip(*table.values(), strict=True)])


def columns_parquet(table: Columns, texts: Collection[str]) -> bytes | None:
    """Return columns as a Parquet file, those named by `texts` as text even if they are empty; None
    where neither polars nor pyarrow is installed."""
    out = io.BytesIO()
    try:
        polars = importlib.import_module("polars")
        schema = dict.fromkeys(texts, polars.String)
        polars.DataFrame(table, schema_overrides=schema).write_parquet(out)
    except ImportError:
        try:
            pyarrow = importlib.import_module("pyarrow")
            parquet = importlib.import_module("pyarrow.parquet")
        except ImportError:
            return None
        kinds = dict.fromkeys(texts, pyarrow.string())
        arrays = {name: pyarrow.array(values, kinds.get(name)) for name, values in table.items()}
        parquet.write_table(pyarrow.table(arrays), out)
    return out.getvalue()
