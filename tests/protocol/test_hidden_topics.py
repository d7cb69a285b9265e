"""Documents that name a topic which an ACL hides: they concern that topic, and hold up nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.document_api.controller import track_legacy_reassignments
from kafka_steward.document_api.request_documents import queue_add
from kafka_steward.execution.cancel_signal import consume_cancel_signal
from kafka_steward.execution.external_reassignments import ExternalCancelState
from kafka_steward.execution.move_recovery import HIDDEN
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.kip_documents import InFlight
from kafka_steward.journal.records import MoveState
from tests.protocol.simulated_watch import WATCH, Yard, document, partition
from tests.simulator import Simulator

T0 = TopicPartition("t", 0)
THEIRS = InFlight((1, 2), (2, 3), legacy=True)


def yard_with_secret(**more: Any) -> Yard:
    yard = Yard("t: 12 231 312", "secret: 12", **more)
    yard.simulator.hidden.add("secret")
    return yard


def theirs(yard: Yard) -> None:
    """Their reassignment is recorded as in flight: by someone, or by us before the ACL was taken away."""
    yard.journal.tree.create(paths.reassignment(partition("secret-0")), THEIRS.to_json())


def test_a_signal_cancels_everything_else_and_goes_and_requests_behind_it_are_carried_out() -> None:
    yard = yard_with_secret()
    theirs(yard)
    yard.simulator.alter({T0: (2, 3)})
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, "")
    yard.ask("t-1 234")
    said = yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((2, 1), (2, 3, 4))
    assert yard.journal.tree.get(paths.CANCEL_IN_PROGRESS) is None
    assert yard.record("secret-0") == THEIRS
    assert f"The external reassignment of secret-0 to [2, 3] was not cancelled: {HIDDEN}." in said
    (row,) = yard.journal.audit.rows(action=Action.SKIP)
    assert (row.entry.topic, row.entry.reason, row.entry.code) == ("secret", HIDDEN, None)


def test_it_counts_as_what_stays_and_a_later_signal_deletes_the_record() -> None:
    yard = yard_with_secret()
    theirs(yard)
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, "")
    outcome = consume_cancel_signal(yard.simulator, yard.journal, WATCH)
    assert outcome is not None
    assert [(each.state, each.state.may_be_in_flight) for each in outcome.external] == [
        (ExternalCancelState.HIDDEN, True)
    ]
    yard.simulator.hidden.clear()
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, "")
    yard.run()
    assert yard.record("secret-0") is None


def test_a_request_for_it_is_refused_by_the_name_of_the_acl_and_the_rest_of_it_is_carried_out() -> None:
    yard = yard_with_secret()
    yard.ask("secret-0 23", "t-0 23")
    yard.ask("missing-0 23")
    said = yard.run()
    source = f"{paths.REASSIGNMENT_REQUESTS}/request_0000000000"
    assert f"{source} asks to move secret-0 to [2, 3]: refused, {HIDDEN}." in said
    assert any("missing-0 to [2, 3]: refused, there is no such partition." in each for each in said)
    assert yard.replicas("t-0") == (2, 3)
    assert yard.requests() == []
    assert HIDDEN in [row.detail for row in yard.journal.audit.rows(action=Action.REQUEST)]


def test_an_entry_of_the_queue_for_it_is_refused_by_the_name_of_the_acl() -> None:
    yard = yard_with_secret()
    queue_add(yard.journal, document(["secret-0 23", "t-0 23"]), who=WATCH)
    said = yard.run()
    assert any(f"secret-0 to [2, 3]: refused, {HIDDEN}." in each for each in said)
    assert (yard.replicas("t-0"), yard.journal.tree.get(paths.REASSIGN_QUEUE)) == ((2, 3), None)


class HidesAt:
    """A cluster whose ACL for `t` is taken away at a call."""

    def __init__(self, simulator: Simulator, call: str, times: int = 1) -> None:
        self._simulator, self._call, self._left = simulator, call, times

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._simulator, name)
        if name != self._call:
            return real

        def called(*args: Any, **more: Any) -> Any:
            answer = real(*args, **more)
            self._left -= 1
            if not self._left:
                self._simulator.hidden.add("t")
            return answer

        return called


def test_a_request_whose_topic_is_hidden_after_it_was_judged_is_judged_again() -> None:
    yard = Yard()
    yard.ask("t-0 23")
    yard.protocol = yard.new_watch(HidesAt(yard.simulator, "topic_configs"))
    assert yard.look().pause_s is not None
    assert len(yard.requests()) == 1
    (said,) = yard.run()
    assert said.endswith(f"refused, {HIDDEN}.")
    assert yard.requests() == []


def test_a_queue_is_taken_away_although_one_of_its_topics_is_hidden() -> None:
    yard = Yard("t: 12 231", "secret: 12", max_in_flight=1)
    queue_add(yard.journal, document(["t-1 234", "secret-0 23", "t-0 23"]), who=WATCH)
    yard.look()
    yard.simulator.hidden.add("secret")
    node = yard.journal.tree.get(paths.REASSIGN_QUEUE)
    assert node is not None
    yard.journal.tree.delete(node.path, version=node.version)
    yard.look()
    (plan,) = yard.journal.plans.unfinished()
    states = {str(row.topic_partition): row.state for row in yard.journal.plans.rows(plan.digest)}
    assert states == {"t-1": MoveState.SUBMITTED, "secret-0": MoveState.DROPPED, "t-0": MoveState.DROPPED}
    yard.run()
    assert yard.replicas("t-1") == (2, 3, 4)


def test_by_the_old_route_the_others_are_recorded_and_what_is_recorded_of_it_stays() -> None:
    yard = yard_with_secret(zookeeper=True)
    theirs(yard)
    yard.journal.tree.create(paths.REASSIGN_PARTITIONS, document(["secret-1 23", "t-0 23"]))
    yard.simulator.alter({T0: (2, 3)})
    (said,) = track_legacy_reassignments(yard.simulator, yard.journal, {})
    assert said == f"/admin/reassign_partitions is left to Kafka with secret-1, unrecorded: {HIDDEN}."
    assert (yard.record("t-0"), yard.record("secret-0")) == (InFlight(None, (2, 3), legacy=True, top=2), THEIRS)


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_the_order_of_what_was_cancelled_while_off_is_restored_when_it_can_be_seen_again(mode: str) -> None:
    yard = Yard(mode=mode, foreign_while_disabled="cancel")
    yard.protocol = yard.new_watch(HidesAt(yard.simulator, "cancel"))
    yard.journal.tree.create(paths.REASSIGN_CANCEL, "")
    yard.look()
    before = yard.replicas("t-0")
    yard.simulator.alter({T0: (3, 2)})
    assert yard.look().pause_s is not None
    assert yard.replicas("t-0") == tuple(reversed(before))
    yard.simulator.hidden.clear()
    yard.look()
    assert yard.replicas("t-0") == before


def test_a_snapshot_of_named_topics_says_which_are_hidden() -> None:
    found: Snapshot = yard_with_secret().simulator.snapshot(["t", "secret", "none"])
    assert found.topics == {"t"}
    assert found.hidden == {"secret"}
