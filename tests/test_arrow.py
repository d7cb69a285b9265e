"""PyArrow without pandas, in a process of its own: what a process has imported stays imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

BEGIN = "import sys; from kafka_steward.arrow import leave_out_pandas; leave_out_pandas(); import pyarrow as pa; "


def printed(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_a_table_is_made_and_read_without_pandas() -> None:
    assert printed(BEGIN + "print(pa.table({'a': [1, 2]}).to_pylist(), 'pandas' in sys.modules)") == (
        "[{'a': 1}, {'a': 2}] False"
    )


def test_who_needs_pandas_still_has_it() -> None:
    code = (
        BEGIN
        + "import pandas as pd; table = pa.table({'a': [1, 2]}).to_pandas(); print(table.a.sum(), len(sys.meta_path))"
    )
    assert printed(code).startswith("3 ")
    code = BEGIN + "import pandas as pd; print(pa.Table.from_pandas(pd.DataFrame({'a': [1, 2]})).num_rows)"
    assert printed(code) == "2"


def test_another_thread_finds_pandas_meanwhile() -> None:
    code = """
import sys, threading
from kafka_steward.arrow import _WithoutPandas
finder = _WithoutPandas()
found = []
thread = threading.Thread(target=lambda: found.append(finder.find_spec("pandas", None)))
thread.start()
thread.join()
try:
    finder.find_spec("pandas", None)
except ModuleNotFoundError as error:
    print(found, error)
"""
    assert printed(code) == "[None] pandas is left out"
