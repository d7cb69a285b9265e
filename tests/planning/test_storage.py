"""Addresses: one place where Spark's spelling and fsspec's are told apart."""

import pyarrow as pa
import pytest

from kafka_steward.planning.files.storage import Folder, fsspec_uri, is_local_uri, spark_uri


@pytest.mark.parametrize(
    ("given", "spark", "fsspec"),
    [
        ("s3://bucket/run", "s3a://bucket/run", "s3://bucket/run"),
        ("s3a://bucket/run", "s3a://bucket/run", "s3://bucket/run"),
        ("file:///w/run", "file:///w/run", "file:///w/run"),
        ("file:/w/run", "file:/w/run", "file:///w/run"),
        ("/w/my run", "file:///w/my run", "/w/my run"),
        ("hdfs://name/run", "hdfs://name/run", "hdfs://name/run"),
        ("gs://bucket/run", "gs://bucket/run", "gs://bucket/run"),
    ],
)
def test_an_address_in_both_spellings(given: str, spark: str, fsspec: str) -> None:
    assert spark_uri(given) == spark
    assert fsspec_uri(given) == fsspec
    assert is_local_uri(given) == spark.startswith("file:")


def test_a_table_takes_the_place_of_a_folder_that_an_attempt_left() -> None:
    folder = Folder("memory://steward/run/plan", "plan")
    folder.write_text("plan.parquet/part-00009-old.snappy.parquet", "half a file")
    folder.write_table("plan.parquet", pa.table({"partition": [1, 2]}))
    assert folder.read_table("plan.parquet").to_pydict() == {"partition": [1, 2]}
    folder.write_table("plan.parquet", pa.table({"partition": [3]}))
    assert folder.read_table("plan.parquet").to_pydict() == {"partition": [3]}
