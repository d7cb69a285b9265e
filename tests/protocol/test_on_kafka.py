"""Every sentence of KIP-236 and KIP-46 about a znode, on real clusters, driven by documents written with bare hands.

With ZooKeeper, kazoo alone writes to the brokers' own; on KRaft, SQL statements write to the journal. No DAG runs, only
the watch of the triggerer. docs/reference/journal.md maps each sentence to its test.
"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NodeExistsError

from kafka_steward.assignment import Move
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.cluster.throttles import Side, rates
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import Runner
from kafka_steward.journal.audit import Action, Who
from kafka_steward.journal.moves import MoveState
from kafka_steward.journal.open import open_journal
from kafka_steward.journal.zk_options import ZooKeeperOptions
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.by_hand import plan_by_hand
from tests.eventually import eventually
from tests.protocol.site import SLOW, Site, gone, same, site
from tests.protocol.yard import document

__all__ = ["site"]

REQUESTS = "/admin/reassignment_requests"
CANCEL, SIGNAL = "/admin/reassign_cancel", "/admin/cancel_reassignment_in_progress"
QUEUE, LEGACY = "/admin/reassign_partitions_queue", "/admin/reassign_partitions"


def test_236_requests_in_both_formats_are_carried_out_recorded_and_deleted(site: Site) -> None:
    site.create("12", "23", "34", large=True)
    with site.watch():
        path = site.hands.ask(site.document("0 42"))
        record = site.eventually_flies(0, 4, 2)
        assert (record.original_replicas, record.top) == ([1, 2], 2)
        eventually(gone(site.hands, path))
        mapped = {"version": 1, "legacy": True, "assignments": {site.topic: {"1": [2, 1]}}}
        site.hands.ask(json.dumps(mapped))
        assert eventually(lambda: legacy_of(site, 1), within=40)
        site.eventually_at([4, 2], [2, 1], [3, 4], within=120, hurried=True)
        eventually(gone(site.hands, *(f"/admin/reassignments/{site.topic}/{number}" for number in (0, 1))))
        assert site.hands.children(REQUESTS) == []
        eventually(lambda: same(site.hands.children("/admin/reassign_chunks"), []))


def legacy_of(site: Site, number: int) -> bool:
    record = site.record(number)
    assert record is not None
    assert getattr(record, "legacy", False)
    return True


def test_236_a_later_request_changes_the_reassignment_and_leaves_no_intermediate_replica(site: Site) -> None:
    site.create("12", large=True)
    with site.watch():
        site.hands.ask(site.document("0 23"))
        first = site.eventually_flies(0, 2, 3)
        site.hands.ask(site.document("0 24"))
        second = site.eventually_flies(0, 2, 4)
        assert 3 not in site.replicas()
        assert second.original_replicas == [1, 2]
        assert second.created_id == first.created_id  # czxid: the same reassignment
        assert second.modified_id != first.modified_id  # mzxid: it has changed
        # "It is possible to cancel the reassignment of a single partition by changing it to the old replicas."
        site.hands.ask(site.document("0 12"))
        site.eventually_at([1, 2])
        eventually(gone(site.hands, f"/admin/reassignments/{site.topic}/0"))


def test_236_the_signal_takes_what_is_pending_back_to_its_originals_in_order(site: Site) -> None:
    site.create("12", "23", large=True)
    with site.watch():
        site.hands.ask(site.document("0 42", "1 13"))
        site.eventually_flies(0, 4, 2)
        site.hands.put(SIGNAL, "")
        site.eventually_at([1, 2], [2, 3], within=40)
        eventually(gone(site.hands, SIGNAL, *(f"/admin/reassignments/{site.topic}/{number}" for number in (0, 1))))

        eventually(partial(unthrottled, site))


def unthrottled(site: Site) -> None:
    found = site.cluster.broker_configs(site.sandbox.brokers, [Side.FOLLOWER.rate_key], own_only=True)
    assert not any(found.values())
    topics = sorted({name.topic for name in site.cluster.snapshot().partitions if name.topic.startswith(site.topic)})
    assert not any(site.cluster.topic_configs(topics, [Side.FOLLOWER.replicas_key], own_only=True).values())


def test_236_with_the_scope_of_a_plan_the_signal_takes_back_what_is_complete_too(site: Site) -> None:
    small = f"{site.topic}-small"
    site.create("123", large=True)
    site.sandbox.create_topics(small, assignments={0: [1, 2, 3], 1: [2, 3, 1]})

    def small_ones() -> dict[int, tuple[int, ...]]:
        return {name.partition: each.replicas for name, each in site.cluster.snapshot([small]).partitions.items()}

    with site.watch():
        site.hands.ask(document([f"{small}-0 423", f"{small}-1 321", f"{site.topic}-0 423"]))
        site.eventually_flies(0, 4, 2, 3)
        eventually(lambda: same(small_ones(), {0: (4, 2, 3), 1: (3, 2, 1)}))
        site.hands.put(SIGNAL, '{"scope": "plan"}')
        site.eventually_at([1, 2, 3])
        eventually(lambda: same(small_ones(), {0: (1, 2, 3), 1: (2, 3, 1)}))
        eventually(gone(site.hands, SIGNAL, f"/admin/reassignments/{site.topic}/0"))
        eventually(lambda: next_saying(site, "2 of 2 partitions moved"))  # the rollback of what was complete
        eventually(partial(unthrottled, site))
    assert site.hands.children("/admin/reassign_chunks") == []


@pytest.mark.ci
def test_236_no_original_in_sync_and_a_new_one_online_is_skipped_and_all_offline_is_rolled_back(
    site: Site, tmp_path: Path
) -> None:
    site.create("1", "1", large=True)
    with site.watch(abandon=True):
        site.hands.ask(site.document("0 34", "1 2"))
        site.eventually_flies(0, 3, 4)
        site.eventually_flies(1, 2)
    site.hurry(3)
    eventually(lambda: same(3 in site.partition(0).isr, True))
    site.sandbox.kill(1)
    site.sandbox.kill(2)
    eventually(lambda: same((site.partition(0).isr, site.partition(0).leader), ({3}, 3)), within=60)
    eventually(lambda: same(site.partition(1).leader, None), within=60)
    assert site.flying() == [0, 1]
    site.hands.put(SIGNAL, "")
    with site.watch():
        rule = "KIP-236: none of the original replicas is in sync, and going back would take it offline"
        eventually(lambda: same(told(site, tmp_path, Action.SKIP), {(0, rule, "")}), within=60)
        eventually(gone(site.hands, SIGNAL))
        if site.sandbox.zookeeper is None:  # a KRaft controller refuses: tried again when a broker is back
            eventually(lambda: unclean(told(site, tmp_path, Action.CANCEL)))
            assert site.flying() == [0, 1]
        else:
            eventually(lambda: same((site.flying(), site.replicas(1)), ([0], [1])), within=60)
        site.sandbox.restart(1)
        site.sandbox.restart(2)
        site.eventually_at([1], [1], within=90)  # an original is in sync again: that rule holds no more
        # The throttle of a dead broker is given back when it is there again.
        eventually(lambda: same(site.hands.children("/steward/borrowed/broker"), []), within=60)
        eventually(gone(site.hands, *(f"/admin/reassignments/{site.topic}/{number}" for number in (0, 1))))


def told(site: Site, folder: Path, action: Action) -> set[tuple[int | None, str, str]]:
    """What the audit trail says: partitions, why, and Kafka's words where it refused."""
    with open_journal(f"sqlite:///{folder}/journal.db", site.cluster.cluster_id) as journal:
        return {(row.entry.partition, row.entry.reason, row.detail) for row in journal.audit.rows(action=action)}


def unclean(rows: set[tuple[int | None, str, str]]) -> None:
    assert [number for number, _, words in rows if "it would require an unclean leader election" in words] == [1]


def test_236_while_reassign_cancel_is_there_nothing_starts(site: Site) -> None:
    site.create("123")
    with site.watch():
        site.hands.put(CANCEL, '{"person": "ada", "reason": "moving racks"}')
        path = site.hands.ask(site.document("0 423"))
        said = eventually(lambda: next_saying(site, "waits: reassignments are switched off by ada since"))
        assert said.startswith(path)
        assert (site.flying(), site.hands.get(path) is None) == ([], False)
        site.hands.delete(CANCEL)
        site.eventually_at([4, 2, 3])


def next_saying(site: Site, words: str) -> str:
    found = [line for line in site.said if words in line]
    assert found
    return found[0]


def test_236_the_queue_is_emptied_as_its_partitions_start(site: Site) -> None:
    site.create("12", "23", large=True)
    with site.watch(max_in_flight=1):
        site.hands.ask(site.document("0 42"))
        site.eventually_flies(0, 4, 2)
        site.hands.put(QUEUE, site.document("0 13", "1 24"))
        with pytest.raises(NodeExistsError):
            site.hands.put(QUEUE, site.document("1 24"))
        record = site.eventually_flies(0, 1, 3)  # cancelled first, then submitted anew
        assert record.original_replicas == [1, 2]

        def one_left() -> None:
            seen = site.hands.get(QUEUE)
            assert seen is not None
            assert [each["partition"] for each in json.loads(seen.data)["partitions"]] == [1]

        eventually(one_left)
        site.eventually_at([1, 3], [2, 4], within=120, hurried=True)
        eventually(gone(site.hands, QUEUE))


def test_236_failover_what_was_written_and_what_flew_while_nobody_looked(site: Site) -> None:
    site.create("12", "23", large=True)
    with site.watch(abandon=True):
        site.hands.ask(site.document("0 42"))
        flew = site.eventually_flies(0, 4, 2)
    site.hands.ask(site.document("1 21"))
    with site.watch(throttle=0):
        assert site.record(0).created_id == flew.created_id
        site.eventually_at([4, 2], [2, 1], within=90, hurried=True)


def test_46_a_broker_that_fails_is_entered_and_its_entries_go_when_it_is_back(site: Site) -> None:
    site.create("123", "341")
    slow_heal: dict[str, Any] = {"heal_failure_interval": 600, "heal_fast_detection": True}
    site.hands.put("/admin/rolling_bounce/4", json.dumps({"timestamp": int(time.time() * 1000)}))
    with site.watch(**slow_heal):
        site.sandbox.kill(4)

        def entered() -> Any:
            seen = site.hands.get("/admin/failed_brokers/4")
            assert seen is not None
            return json.loads(seen.data)

        assert abs(eventually(entered, within=60)["failure_timestamp"] - time.time() * 1000) < 60_000
        eventually(lambda: next_saying(site, "Broker 4 is gone; the grace period ends in"))  # it announced it
        site.sandbox.restart(4)
        eventually(gone(site.hands, "/admin/failed_brokers/4", "/admin/rolling_bounce/4"), within=60)


@pytest.mark.ci
def test_46_option_2_died_after_the_chunks_and_before_the_failed_entry_was_deleted(site: Site, tmp_path: Path) -> None:
    site.create("423")
    site.sandbox.kill(4)
    eventually(lambda: same(4 in site.cluster.live_brokers(), False), within=60)
    zookeeper = None if site.sandbox.zookeeper is None else ZooKeeperOptions(site.sandbox.zookeeper)
    moves = [Move(site.topic, 0, (4, 2, 3), (1, 2, 3), 0, 0, "broker_failed")]
    url, rules, who = f"sqlite:///{tmp_path}/journal.db", Settings(throttle=0), Who(person="ada")
    with open_journal(url, site.cluster.cluster_id, zookeeper=zookeeper) as journal:
        for turn, state in enumerate([MoveState.COMPLETED, MoveState.SATISFIED]):
            site.hands.put("/admin/failed_brokers/4", '{"failure_timestamp": 1}')  # the second time: not deleted
            plan = plan_by_hand(
                site.cluster, journal, tmp_path / str(turn), moves, operation="heal", failed=[4], turn=turn
            )
            publish_plan(site.cluster, journal, plan, settings=rules, who=who)
            assert site.hands.get("/admin/failed_brokers/4") is None
            runner = Runner(site.cluster, journal, plan.digest, rules, who)
            eventually(partial(ends, runner), within=60)
            assert [row.state for row in journal.plans.rows(plan.digest)] == [state]
            assert site.hands.children("/admin/reassign_chunks") == []
    site.sandbox.restart(4)


def ends(runner: Runner) -> None:
    progress = runner.step()
    assert progress.ended, progress


def test_236_reassign_partitions_keeps_its_own_route(zookeeper_sandbox: Sandbox, site: Site) -> None:
    site.create("123", "231", large=True)
    slow_down(site, "0:4,1:4")
    with site.watch():
        # Kafka 3.9 ignores the node when it holds KIP-236's original_replicas: who knows them writes them here.
        noted = {"replicas": [4, 2, 3], "original_replicas": [1, 2, 3], "legacy": True}
        site.hands.put(f"/admin/reassignments/{site.topic}/0", json.dumps(noted))
        site.hands.put(LEGACY, site.document("0 423", "1 431"))
        record = site.eventually_flies(1, 4, 3, 1)
        assert (record.legacy, hasattr(record, "original_replicas"), record.top) == (True, False, 3)
        path = site.hands.ask(site.document("1 243"))
        eventually(gone(site.hands, path))
        eventually(lambda: next_saying(site, "by another route already, /admin/reassign_partitions"))
        site.hands.put(SIGNAL, "")
        eventually(lambda: same(site.flying(), [1]), within=40)
        skipped = f"{site.topic}-1 was not cancelled: KIP-236: no original replicas are recorded"
        eventually(lambda: next_saying(site, skipped))
        eventually(lambda: same(site.replicas(0), [1, 2, 3]))
        eventually(gone(site.hands, SIGNAL, f"/admin/reassignments/{site.topic}/0"))
        slow_down(site, "")
        eventually(lambda: same(site.replicas(1), [4, 3, 1]), within=60)
        eventually(gone(site.hands, LEGACY, f"/admin/reassignments/{site.topic}/1"), within=60)


def test_236_failover_case_1_reassign_partitions_was_created_while_nobody_looked(
    zookeeper_sandbox: Sandbox, site: Site
) -> None:
    site.create("123", large=True)
    slow_down(site, "0:4")
    site.hands.put(LEGACY, site.document("0 423"))
    eventually(lambda: same(site.flying(), [0]), within=40)
    with site.watch():
        record = site.eventually_flies(0, 4, 2, 3)
        assert (record.legacy, record.top) == (True, 3)
        slow_down(site, "")
        site.eventually_at([4, 2, 3])
        eventually(gone(site.hands, LEGACY, f"/admin/reassignments/{site.topic}/0"), within=60)


def test_236_a_connection_may_submit_by_reassign_partitions(zookeeper_sandbox: Sandbox, site: Site) -> None:
    site.create("123", "231", large=True)
    with site.watch(submission="legacy"):
        site.hands.ask(site.document("0 423"))
        record = site.eventually_flies(0, 4, 2, 3)
        assert (record.original_replicas, hasattr(record, "legacy")) == ([1, 2, 3], False)
        written = site.hands.get(LEGACY)
        assert written is not None
        assert json.loads(written.data)["partitions"] == json.loads(site.document("0 423"))["partitions"]
        site.hands.ask(site.document("1 431"))  # one batch at a time: it waits
        eventually(lambda: next_saying(site, "request_0000000001"))
        assert site.flying() == [0]
        site.eventually_at([4, 2, 3], [4, 3, 1], within=120, hurried=True)


def slow_down(site: Site, replicas: str) -> None:
    """Throttle, by hand, what arrives at broker 4 for these replicas of the topic; for none, let it through."""
    op = ConfigOp.SET if replicas else ConfigOp.DELETE
    site.cluster.change_topic_configs({site.topic: [ConfigChange(Side.FOLLOWER.replicas_key, op, replicas or None)]})
    rate = str(SLOW["throttle"]) if replicas else None
    site.cluster.change_broker_configs({4: [ConfigChange(Side.FOLLOWER.rate_key, op, rate)]})
    told = {4: None if rate is None else int(rate)}
    eventually(lambda: same(rates(site.cluster, Side.FOLLOWER, [4]), told), within=30)


def test_46_a_new_controller_reads_everything_anew(zookeeper_sandbox: Sandbox, site: Site) -> None:
    site.create("123")
    with site.watch():
        site.hands.ask(site.document("0 423"))
        site.eventually_at([4, 2, 3])  # so it is listening
        site.hands.delete("/controller")
        eventually(lambda: next_saying(site, "The controller of the cluster changed; everything is read anew."))
        site.hands.ask(site.document("0 123"))
        site.eventually_at([1, 2, 3])
