"""What a reassignment needs next that is being taken back (KIP-236)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.cluster.state import Partition
from kafka_steward.execution.moves.reversal import NextAction, Reversal, next_action
from kafka_steward.execution.moves.reversal import ReversalState as State
from tests.execution.looks import brokers, part
from tests.simulated_plan import move

ONE = Reversal(move("t-0", "123", "423", topic_id="id1"), "why")
LATE = replace(ONE, rolls_back=True)
UNANSWERED = replace(ONE, unanswered=True)
LOWERED = Reversal(move("t-0", "1234", "12"), "why")
ORDER = Reversal(move("t-0", "123", "123"), "why")
STAGED = Reversal(move("t-0", "123", "456"), "why", stage=1)
UNKNOWN = Reversal(move("t-0", "", "423"), "why")

IN_FLIGHT = part("t-0", "4231", isr="123", adding="4", removing="1")
OTHER = part("t-0", "5231", isr="123", adding="5", removing="1")
AT_TARGET = part("t-0", "423", topic_id="id1")
ENDLESS = part("t-0", "1234", adding="4", removing="4")
COMES, GOES = part("t-0", "1234", isr="123", adding="4"), part("t-0", "1234", removing="4")
HALFWAY = part("t-0", "1234")

#: The reversal, what the cluster shows, the live brokers, and what that is.
CASES = {
    "in flight": (ONE, IN_FLIGHT, "1234", State.IN_FLIGHT),
    "in flight, and cancelled": (replace(ONE, cancelled=True), IN_FLIGHT, "1234", State.STALE),
    "in flight elsewhere": (ONE, OTHER, "12345", State.TAKEN_OVER),
    "the order lost": (ONE, part("t-0", "231"), "123", State.ORDER_LOST),
    "as it was": (ONE, part("t-0", "123"), "", State.RESTORED),
    "arrived": (ONE, AT_TARGET, "1234", State.COMPLETED),
    "at none of both": (ONE, part("t-0", "253"), "1235", State.ELSEWHERE),
    "at rest, and listed as in flight": (ONE, part("t-0", "4231", isr="23"), "1234", State.STALE),
    "the target and one more": (ONE, part("t-0", "4235"), "12345", State.ELSEWHERE),
    "gone": (ONE, None, "1234", State.GONE),
    "re-created, in another order": (ONE, part("t-0", "231", topic_id="id2"), "123", State.ELSEWHERE),
    "removes only, in flight": (LOWERED, part("t-0", "1234", removing="34"), "1234", State.IN_FLIGHT),
    "removes only, at rest": (LOWERED, part("t-0", "1234"), "1234", State.RESTORED),
    "removes only, the order lost": (LOWERED, part("t-0", "3124"), "1234", State.ORDER_LOST),
    "never answered": (UNANSWERED, part("t-0", "123"), "123", State.UNANSWERED),
    "never answered, and gone": (UNANSWERED, None, "123", State.UNANSWERED),
    "never answered, and begun": (UNANSWERED, IN_FLIGHT, "1234", State.IN_FLIGHT),
    "never answered, and another is in flight": (UNANSWERED, OTHER, "12345", State.TAKEN_OVER),
    "late, and arrived": (LATE, AT_TARGET, "1234", State.COMPLETED_LATE),
    "late, and on its way back": (LATE, part("t-0", "1234", adding="1", removing="4"), "1234", State.RETURNING),
    "late, from elsewhere": (LATE, part("t-0", "42356", isr="56", adding="423", removing="56"), "456", State.IN_FLIGHT),
    "late, and an original is dead": (LATE, AT_TARGET, "234", State.CANNOT_RESTORE),
    "late, and moved by others before": (replace(LATE, lost="lost"), AT_TARGET, "1234", State.CANNOT_RESTORE),
    "late, and re-created": (LATE, replace(AT_TARGET, topic_id="id2"), "1234", State.CANNOT_RESTORE),
    "of the order, and endless": (ORDER, ENDLESS, "1234", State.IN_FLIGHT),
    "endless, and of someone else": (ONE, ENDLESS, "1234", State.TAKEN_OVER),
    "a stage": (STAGED, COMES, "123456", State.IN_FLIGHT),
    "a stage of what has none": (replace(STAGED, stage=0), COMES, "123456", State.TAKEN_OVER),
    "a stage is let go of": (STAGED, GOES, "123", State.RETURNING),
    "a stage is let go of, an original is dead": (STAGED, GOES, "23", State.IN_FLIGHT),
    "between stages": (STAGED, HALFWAY, "123", State.ORDER_LOST),
    "between stages, an original is dead": (STAGED, HALFWAY, "23", State.CANNOT_RESTORE),
    "between stages, its directory failed": (
        STAGED,
        replace(HALFWAY, offline=frozenset({1})),
        "123",
        State.CANNOT_RESTORE,
    ),
    "a later stage": (STAGED, part("t-0", "12345", isr="4", adding="5"), "45", State.IN_FLIGHT),
    "a later stage, and none before it is live": (
        STAGED,
        part("t-0", "12345", isr="4", adding="5"),
        "5",
        State.CANNOT_CANCEL,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_cluster_shows_of_a_reversal(case: str) -> None:
    reversal, partition, live, state = CASES[case]
    verdict = next_action(reversal, partition, frozenset(brokers(live)))
    assert verdict.state is state
    assert bool(verdict.why) is (verdict.action is NextAction.FORBIDDEN)
    assert verdict.replicas == (partition.replicas if partition and state is not State.UNANSWERED else ())


@pytest.mark.parametrize("reversal", [ONE, UNANSWERED, LATE])
def test_what_we_may_not_describe_is_waited_for(reversal: Reversal) -> None:
    assert next_action(reversal, None, frozenset(), hidden=True).state is State.HIDDEN


OFFLINE = "none of the original replicas is in sync, so a cancel would take it offline"


@pytest.mark.parametrize(
    ("reversal", "isr", "live", "why"),
    [
        pytest.param(ONE, "123", "1234", "", id="in sync"),
        pytest.param(ONE, "14", "14", "", id="one in sync"),
        pytest.param(ONE, "4", "4", OFFLINE, id="none in sync"),
        pytest.param(ONE, "4", "1234", OFFLINE, id="only the new one in sync"),
        pytest.param(ONE, "3", "4", OFFLINE, id="in sync and dead"),
        pytest.param(ONE, "3", "", "", id="all offline"),
        pytest.param(ONE, "4", "123", "", id="what is in sync is offline"),
        pytest.param(UNKNOWN, "123", "123", "no original replicas are recorded, so it cannot be cancelled", id="none"),
    ],
)
def test_kip_236s_skip_rules(reversal: Reversal, isr: str, live: str, why: str) -> None:
    partition = part("t-0", "4231", isr=isr, adding="4", removing="1")
    verdict = next_action(reversal, partition, frozenset(brokers(live)))
    assert verdict.why == (f"KIP-236: {why}" if why else "")
    assert verdict.action is (NextAction.FORBIDDEN if why else NextAction.CANCEL)


def test_a_skipped_cancel_names_the_originals_that_may_lead_without_a_loss() -> None:
    partition = replace(part("t-0", "4231", isr="4", adding="4", removing="1"), eligible=frozenset({2, 3, 9}))
    verdict = next_action(ONE, partition, frozenset({4}))
    assert verdict.action is NextAction.FORBIDDEN
    assert verdict.why == (
        f"KIP-236: {OFFLINE}; brokers 2 and 3 may lead without a loss (ELR, KIP-966): start one, and cancel again when "
        "it is in sync"
    )


def test_each_reason_why_it_cannot_be_restored_is_named() -> None:
    def why(reversal: Reversal, partition: Partition) -> str:
        return next_action(reversal, partition, frozenset({2, 3, 4})).why

    assert why(LATE, AT_TARGET) == "its original broker 1 is not live"
    assert why(replace(LATE, lost="it was elsewhere"), AT_TARGET) == "it was elsewhere"
    assert why(LATE, replace(AT_TARGET, topic_id="id2")).startswith("its topic was deleted and re-created meanwhile")
    assert why(STAGED, HALFWAY) == "an original broker is dead or its log directory failed"
