"""Every sentence of KIP-236 and KIP-46 about a znode, on real clusters, driven by documents written with bare hands.

With ZooKeeper, kazoo alone writes to the brokers' own; on KRaft, SQL statements write to the journal. No DAG runs, only
the watch of the triggerer. docs/reference/journal.md maps each sentence to its test.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.cluster.throttles import Side, rates
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import Runner
from kafka_steward.journal.audit import Who
from kafka_steward.journal.moves import MoveState
from kafka_steward.journal.open import open_journal
from kafka_steward.journal.zk_options import ZooKeeperOptions
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from kafka_steward.triggers.watch import WatchTrigger
from tests.airflow_home import Connect
from tests.by_hand import plan_by_hand
from tests.eventually import eventually
from tests.protocol.hands import Hands, KazooHands, SqlHands
from tests.protocol.yard import document

REQUESTS = "/admin/reassignment_requests"
CANCEL, SIGNAL = "/admin/reassign_cancel", "/admin/cancel_reassignment_in_progress"
QUEUE, LEGACY = "/admin/reassign_partitions_queue", "/admin/reassign_partitions"
#: Slow enough for a move of this many bytes to be seen in flight: Kafka's quota lets 11 s' worth through at once.
SLOW, SIZE = {"throttle": 100_000, "step_interval": 0.5}, 3_000_000


class Site:
    """A real cluster, a hand for its documents, and a watch that can be started and stopped."""

    def __init__(self, sandbox: Sandbox, cluster: KafkaCluster, hands: Hands, conn_id: str, topic: str) -> None:
        self.sandbox, self.cluster, self.hands, self.conn_id, self.topic = sandbox, cluster, hands, conn_id, topic
        self.said: list[str] = []

    @contextmanager
    def watch(self, *, abandon: bool = False, **overrides: Any) -> Iterator[None]:
        """The trigger, as the triggerer runs it, in a loop of its own."""
        loop = asyncio.new_event_loop()
        trigger = WatchTrigger(self.conn_id, {**SLOW, **overrides})
        quiet = SimpleNamespace(info=lambda line, *rest: self.said.append(line % rest))
        trigger._log = quiet  # type: ignore[attr-defined]  # Airflow's own place for it
        trigger._teller._say = quiet.info

        async def listen() -> None:
            async for _ in trigger.run():
                pass

        task = loop.create_task(listen())
        thread = threading.Thread(target=lambda: _until_cancelled(loop, task))
        thread.start()
        try:
            yield
            if not abandon:
                eventually(self.free, within=60)  # throttles are given back at a plan's end
        finally:
            loop.call_soon_threadsafe(task.cancel)
            thread.join(30)
            asyncio.run(trigger.cleanup())
            loop.close()

    def free(self) -> None:
        """No plan has the cluster."""
        slot = self.hands.get("/steward/slot")
        assert slot is None or json.loads(slot.data).get("plan") is None

    def create(self, *replicas: str, large: bool = False) -> None:
        assignments = {number: list(map(int, each)) for number, each in enumerate(replicas)}
        self.sandbox.create_topics(self.topic, assignments=assignments)
        if large:
            self.sandbox.fill(self.topic, SIZE * len(replicas))

    def hurry(self) -> None:
        """Enough was seen of what flies: let it arrive."""
        fast = ConfigChange(Side.FOLLOWER.rate_key, ConfigOp.SET, "100000000")
        self.cluster.change_broker_configs({broker: [fast] for broker in self.sandbox.brokers})

    def document(self, *wanted: str, **more: Any) -> str:
        return document([f"{self.topic}-{each}" for each in wanted], **more)

    def record(self, number: int = 0) -> Any:
        seen = self.hands.get(f"/admin/reassignments/{self.topic}/{number}")
        return None if seen is None else SimpleNamespace(**{**json.loads(seen.data), **vars(seen)})

    def replicas(self, number: int = 0) -> list[int]:
        return list(self.cluster.snapshot([self.topic]).partitions[TopicPartition(self.topic, number)].replicas)

    def flying(self) -> list[int]:
        return sorted(name.partition for name in self.cluster.reassignments() if name.topic == self.topic)

    def eventually_at(self, *replicas: list[int], within: float = 60) -> None:
        def there() -> None:
            assert [self.replicas(number) for number in range(len(replicas))] == list(replicas)
            assert self.flying() == []

        eventually(there, within=within, errors=(KeyError,))

    def eventually_flies(self, number: int, *target: int) -> Any:
        def flies() -> Any:
            record = self.record(number)
            assert record is not None
            assert record.replicas == list(target)
            assert number in self.flying()
            return record

        return eventually(flies, within=40)


def _until_cancelled(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    with suppress(asyncio.CancelledError):
        loop.run_until_complete(task)


@pytest.fixture
def site(
    sandbox: Sandbox, connect: Connect, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    journal = tmp_path / "journal.db"
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
        open_journal(f"sqlite:///{journal}", cluster.cluster_id).close()  # its tables
        monkeypatch.setattr("kafka_steward.triggers.documents.POLL_S", 1.0)
        rates = ConfigChange(Side.FOLLOWER.rate_key, ConfigOp.DELETE)
        cluster.change_broker_configs({broker: [rates] for broker in sandbox.brokers})  # of a test that failed
        extra = {"journal": f"sqlite:///{journal}", "bootstrap_timeout_ms": 30_000}
        if sandbox.zookeeper is None:
            conn_id = connect(host=sandbox.bootstrap, extra=extra)
            yield Site(sandbox, cluster, SqlHands(journal, cluster.cluster_id), conn_id, topic)
            return
        client = KazooClient(sandbox.zookeeper)
        client.start()
        hands = KazooHands(client)
        hands.sweep()
        conn_id = connect(host=sandbox.bootstrap, extra={**extra, "zookeeper": sandbox.zookeeper})
        try:
            yield Site(sandbox, cluster, hands, conn_id, topic)
        finally:
            hands.sweep()
            client.stop()
            client.close()


def gone(hands: Hands, *paths: str) -> Callable[[], None]:
    def check() -> None:
        assert [path for path in paths if hands.get(path) is not None] == []

    return check


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
        site.hurry()
        site.eventually_at([4, 2], [2, 1], [3, 4], within=120)
        eventually(gone(site.hands, *(f"/admin/reassignments/{site.topic}/{number}" for number in (0, 1))))
        assert site.hands.children(REQUESTS) == []
        eventually(lambda: same(site.hands.children("/admin/reassign_chunks"), []))


def legacy_of(site: Site, number: int) -> bool:
    record = site.record(number)
    assert record is not None
    assert getattr(record, "legacy", False)
    return True


def same(found: object, expected: object) -> None:
    assert found == expected


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

        def no_throttle() -> None:
            rates = site.cluster.broker_configs(site.sandbox.brokers, [Side.FOLLOWER.rate_key], own_only=True)
            assert not any(rates.values())

        eventually(no_throttle)


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
        site.hurry()
        site.eventually_at([1, 3], [2, 4], within=120)
        eventually(gone(site.hands, QUEUE))


def test_236_failover_what_was_written_and_what_flew_while_nobody_looked(site: Site) -> None:
    site.create("12", "23", large=True)
    with site.watch(abandon=True):
        site.hands.ask(site.document("0 42"))
        flew = site.eventually_flies(0, 4, 2)
    site.hands.ask(site.document("1 21"))
    with site.watch(throttle=0):
        assert site.record(0).created_id == flew.created_id
        site.hurry()
        site.eventually_at([4, 2], [2, 1], within=90)


def test_46_a_broker_that_fails_is_entered_and_its_entries_go_when_it_is_back(site: Site) -> None:
    site.create("123", "341")
    slow_heal = {"heal_failure_interval": 600, "heal_fast_detection": True}
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


@pytest.mark.slow
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
        site.hurry()
        site.eventually_at([4, 2, 3], within=60)
        eventually(lambda: same(site.replicas(1), [4, 3, 1]), within=60)


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
        eventually(lambda: same(site.hands.children("/steward") != [], True))
        site.hands.delete("/controller")
        eventually(lambda: next_saying(site, "The controller of the cluster changed; everything is read anew."))
        site.hands.ask(site.document("0 423"))
        site.eventually_at([4, 2, 3])
