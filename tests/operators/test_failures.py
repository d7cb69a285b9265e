"""What is to be healed: the detector's verdict is given here, and real in test_on_kafka."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_steward.errors import AuthenticationFailed
from kafka_steward.execution.watching.detector import Detector, Verdict
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.operators.failures import FindFailuresOperator
from tests.airflow_home import context

Found = Callable[..., dict[str, Any]]


def verdict(*failed: int, outage: bool = False) -> Verdict:
    return Verdict(
        due=(), failed=failed, waiting={}, handled=(), cleared=(), down=failed, outage=outage, sentence="So it is.",
        now_ms=1,
    )  # fmt: skip


@pytest.fixture
def overrides(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The overrides of each hook that is opened; what it opens holds nothing."""
    seen: list[dict[str, Any]] = []

    def opened(hook: StewardHook) -> Any:
        seen.append(dict(hook.overrides))
        return nullcontext(SimpleNamespace(cluster=SimpleNamespace(cluster_id="c"), journal=None, settings=None))

    monkeypatch.setattr(StewardHook, "open", opened)
    return seen


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, overrides: list[dict[str, Any]]) -> Found:
    def find(given: Verdict, **more: Any) -> dict[str, Any]:
        monkeypatch.setattr(Detector, "look", lambda _, announce: given if not announce else pytest.fail("announced"))
        return FindFailuresOperator(task_id="find", conn_id="kafka", **more).execute(context())

    return find


def test_all_that_failed_unless_it_is_narrowed(found: Found) -> None:
    assert found(verdict(3, 4))["brokers"] == [3, 4]
    assert found(verdict(3, 4), brokers=[4, 9])["brokers"] == [4]


def test_nothing_to_heal_is_skipped_with_the_reason(found: Found) -> None:
    with pytest.raises(AirflowSkipException, match=r"Nothing is to be healed now\. So it is\."):
        found(verdict(), on_failure_detected=lambda _: pytest.fail("nothing was detected"))
    with pytest.raises(AirflowSkipException, match=r"Nothing is to be healed now"):
        found(verdict(3), brokers=[4])


def test_an_outage_is_told_and_not_healed(found: Found) -> None:
    told: list[Any] = []
    with pytest.raises(AirflowSkipException, match=r"So it is\."):
        found(verdict(3, 4, outage=True), on_not_healable=told.append)
    assert told[0]["kafka_steward"]["event"] == "not_healable"


def test_ignoring_the_grace_period_is_an_override(found: Found, overrides: list[dict[str, Any]]) -> None:
    found(verdict(3))
    found(verdict(3), ignore_grace=True)
    assert overrides == [{}, {"heal_failure_interval": 0}]


def test_a_wrong_password_is_one_sentence_and_detects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: StewardHook) -> Any:
        raise AuthenticationFailed("Authentication failed at a:9092: mend the user and password.")

    monkeypatch.setattr(StewardHook, "open", refused)
    told: list[Any] = []
    with pytest.raises(AirflowFailException, match=r"^Authentication failed"):
        FindFailuresOperator(task_id="find", conn_id="kafka", on_failure_detected=told.append).execute(context())
    assert told == []
