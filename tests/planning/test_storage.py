"""Addresses: one place where Spark's spelling and fsspec's are told apart."""

import pytest

from kafka_steward.planning.files.storage import for_fsspec, for_spark, is_local


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
    assert for_spark(given) == spark
    assert for_fsspec(given) == fsspec
    assert is_local(given) == spark.startswith("file:")
