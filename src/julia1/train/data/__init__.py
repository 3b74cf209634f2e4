"""A user's labelled rows: reading, cleaning, duplicates, splits and checks. Part of it needs the ``train`` extra."""

from typing import TYPE_CHECKING

from julia1.lazy import lazy_names

if TYPE_CHECKING:
    from julia1.train.data.checks import check_data
    from julia1.train.data.cleaning import clean_text
    from julia1.train.data.files import Columns
    from julia1.train.data.rows import DataRow, DataSet, read_rows
    from julia1.train.data.splitting import split_rows

__all__ = ["Columns", "DataRow", "DataSet", "check_data", "clean_text", "read_rows", "split_rows"]

__getattr__ = lazy_names(
    __name__,
    {
        "Columns": "julia1.train.data.files",
        "DataRow": "julia1.train.data.rows",
        "DataSet": "julia1.train.data.rows",
        "check_data": "julia1.train.data.checks",
        "clean_text": "julia1.train.data.cleaning",
        "read_rows": "julia1.train.data.rows",
        "split_rows": "julia1.train.data.splitting",
    },
)
