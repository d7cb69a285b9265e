"""What is to be healed: the detector's verdict is given here, and real in test_on_kafka."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_steward.errors import AuthenticationFailed
from kafka_steward.execution.failure_detector import DetectionResult, FailureDetector
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import ReassignmentsDisabled
from kafka_steward.operators.failures import FindFailuresOperator
from tests.airflow_home import context
from tests.memory_tree import MemoryTree

Found = Callable[..., dict[str, Any]]


def verdict(*failed: int, outage: bool = False) -> DetectionResult:
    return DetectionResult(
        due=(), failed=failed, waiting={}, handled=(), cleared=(), down=failed, outage=outage, sentence="So it is.",
        now_ms=1,
    )  # fmt: skip


@pytest.fixture
def off() -> MemoryTree:
    """The journal's tree, in which KIP-236's switch may be."""
    return MemoryTree(lambda: 1)


@pytest.fixture
def overrides(monkeypatch: pytest.MonkeyPatch, off: MemoryTree) -> list[dict[str, Any]]:
    """The overrides of each hook that is opened; what it opens holds nothing."""
    seen: list[dict[str, Any]] = []
    journal = SimpleNamespace(tree=off)

    def opened(hook: StewardHook) -> Any:
        seen.append(dict(hook.overrides))
        cluster = SimpleNamespace(cluster_id="c", live_brokers=lambda: {1: None, 9: None}, reassignments=dict)
        return nullcontext(SimpleNamespace(cluster=cluster, journal=journal, settings=None))

    monkeypatch.setattr(StewardHook, "open", opened)
    return seen


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, overrides: list[dict[str, Any]]) -> Found:
    def find(given: DetectionResult, **more: Any) -> dict[str, Any]:
        monkeypatch.setattr(
            FailureDetector, "poll", lambda _, announce: given if not announce else pytest.fail("announced")
        )
        return FindFailuresOperator(task_id="find", conn_id="kafka", **more).execute(context())

    return find


def test_all_that_failed_unless_it_is_narrowed(found: Found) -> None:
    assert found(verdict(3, 4))["brokers"] == [3, 4]
    assert found(verdict(3, 4), brokers=[4, 9])["brokers"] == [4]


def test_nothing_to_heal_is_skipped_with_the_reason(found: Found) -> None:
    with pytest.raises(AirflowSkipException, match=r"Nothing is to be healed now\. So it is\."):
        found(verdict(), on_failure_detected=lambda _: pytest.fail("nothing was detected"))
    with pytest.raises(AirflowSkipException, match=r"Nothing is to be healed now"):
        found(verdict(3), brokers=[9])


def test_why_nothing_is_healed_stands_in_the_log_and_on_the_run(
    found: Found, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Airflow drops the sentence of a skip exception."""
    monkeypatch.setattr(FailureDetector, "poll", lambda *_, **__: verdict())
    run = context()
    with pytest.raises(AirflowSkipException):
        FindFailuresOperator(task_id="find", conn_id="kafka").execute(run)
    assert run["ti"].xcoms == {"sentence": "Nothing is to be healed now. So it is."}
    assert "Nothing is to be healed now. So it is." in capsys.readouterr().out


def test_a_broker_that_the_cluster_does_not_have_fails_for_good(found: Found) -> None:
    words = r"^Brokers 4 and 7 cannot be healed: cluster c has none of that id, dead or live; down: 3\.$"
    with pytest.raises(AirflowFailException, match=words):
        found(verdict(3), brokers=[7, 3, 4, 1])


def test_nothing_is_healed_while_reassignments_are_switched_off(found: Found, off: MemoryTree) -> None:
    off.create(paths.REASSIGN_CANCEL, ReassignmentsDisabled("ann", "an audit").to_json())
    with pytest.raises(AirflowSkipException, match=r"^Nothing is healed while reassignments are disabled by ann since"):
        found(verdict(3), on_failure_detected=lambda _: pytest.fail("nothing begins"))
    with pytest.raises(AirflowSkipException, match=r"^Nothing is to be healed now"):
        found(verdict())


def test_an_outage_is_told_and_not_healed(found: Found) -> None:
    told: list[Any] = []
    with pytest.raises(AirflowFailException, match=r"So it is\."):
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
