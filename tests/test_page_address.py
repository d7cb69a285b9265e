"""The addresses of the page: none without a plan, and whole ones only below an address of the web."""

from __future__ import annotations

import pytest

from kafka_steward.page_address import is_digest, plan_url

DIGEST = "3f2a91c0" * 8


@pytest.mark.parametrize("base_url", [None, "", "/airflow", "airflow.example.com", "javascript:alert(1)", "ftp://a/b"])
def test_without_an_address_of_the_web_there_is_no_whole_url(base_url: str | None) -> None:
    assert plan_url("kafka_east", DIGEST, base_url) == ""


def test_a_whole_url_is_below_airflows_own() -> None:
    url = plan_url("kafka east", DIGEST, "https://a.example.com:8080/team/")
    assert url == f"https://a.example.com:8080/team/kafka-steward/plan?conn=kafka+east&digest={DIGEST}"


@pytest.mark.parametrize(("conn_id", "digest"), [("", DIGEST), ("kafka_east", ""), ("kafka_east", "none")])
def test_without_a_connection_or_a_plan_there_is_no_url(conn_id: str, digest: str) -> None:
    assert plan_url(conn_id, digest, "https://a.example.com") == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (DIGEST, True),
        (DIGEST[:6], True),
        (DIGEST[:5], False),
        (f"{DIGEST}0", False),
        ("3f2a91\n", False),
        (None, False),
    ],
)
def test_a_digest_is_as_the_page_accepts_it(text: object, found: bool) -> None:
    assert is_digest(text) == found
