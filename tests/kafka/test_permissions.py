"""docs/permissions.md: its ACLs are enough for each workflow, by SCRAM and by certificate; each is needed."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.errors import AuthenticationFailed, ClusterError, KafkaRefused, KafkaTimeout, RequestError
from kafka_steward.execution.cluster_queries import describe_topic
from kafka_steward.execution.effects import elect_preferred_leaders
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.topics.creation import TopicSpec, add_deferred_partitions, add_partitions, create_topic
from kafka_steward.execution.watch.failure_detector import FailureDetector
from kafka_steward.execution.watch.health import check_health, health_message
from kafka_steward.hooks.cluster_config import ClusterConfig
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.records import DEFERRED_PARTITIONS, DeferredPartitions
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.settings import Settings
from kafka_steward.triggers.watch import WatchTrigger
from tests.cancelling import CancelRunner
from tests.eventually import eventually
from tests.kafka.cluster_contract import assert_hides, same
from tests.local_plan import plan_folder
from tests.secured import IMPLIED, ROWS, SETS, Entry, Secured, rights_of, secured
from tests.simulated_plan import WHO, plan_of
from tests.stepping import step_until, to_the_end

__all__ = ["secured"]

pytestmark = pytest.mark.slow
SETTINGS = Settings(heal_failure_interval=1, throttle=20_000_000, max_failed_fraction=0.5, min_free=0)


@contextmanager
def opened(secured: Secured, name: str, folder: Path) -> Iterator[tuple[KafkaCluster, Journal]]:
    with (
        KafkaCluster(secured.config(name)) as cluster,
        open_journal(f"sqlite:///{folder}/journal.db", cluster.cluster_id) as journal,
    ):
        yield cluster, journal


def carried_out(
    cluster: KafkaCluster, journal: Journal, folder: Path, operation: str, *failed: int, settings: Settings = SETTINGS
) -> str:
    """Snapshot, plan and all its moves, of which there are some; the plan's digest."""
    where = folder / operation
    take_snapshot(cluster, f"{where}/snapshot", failed=failed, now_ms=journal.now_ms())
    plan = plan_folder(where / "snapshot", where / "plan", operation)
    snapshot = read_snapshot(f"{where}/snapshot")
    record = publish_plan(ClusterContext(cluster, journal, settings, WHO), plan, snapshot=snapshot)
    progress = to_the_end(PlanRunner(ClusterContext(cluster, journal, settings, WHO), record.digest))
    assert progress.completed == len(plan.moves) > 0, progress.sentence
    return record.digest


def test_what_the_page_lists_is_enough_to_look_and_for_nothing_else(secured: Secured, tmp_path: Path) -> None:
    secured.sandbox.create_topics("look", partitions=2, replication_factor=2)
    with opened(secured, secured.principal(*rights_of("look")), tmp_path) as (cluster, journal):
        health, _ = eventually(lambda: looked(cluster, journal), within=30, errors=(ClusterError,))
        assert health.hidden_topics == ()
        assert FailureDetector(cluster, journal, SETTINGS, WHO).poll().down == ()
        name = TopicPartition("look", 0)
        change = ConfigChange("retention.ms", ConfigOp.SET, "1000")
        with pytest.raises(KafkaRefused, match=r"\(error 31\)"):
            cluster.alter({name: (3, 4)})
        assert code(cluster.change_topic_configs({"look": [change]})["look"]) == 29
        assert (
            code(
                cluster.change_broker_configs(
                    {1: [ConfigChange("follower.replication.throttled.rate", ConfigOp.SET, "1")]}
                )[1]
            )
            == 31
        )


def looked(cluster: KafkaCluster, journal: Journal) -> Any:
    found = check_health(cluster, journal, thorough=True)
    assert found[0].partitions
    return found


def code(refusal: object) -> int:
    assert isinstance(refusal, KafkaRefused)
    return refusal.code


def test_what_the_page_lists_is_enough_to_rebalance_and_to_heal(secured: Secured, tmp_path: Path) -> None:
    secured.sandbox.create_topics("moved", partitions=6, assignments={number: [1, 2, 3] for number in range(6)})
    secured.sandbox.fill("moved", 600_000)
    with opened(secured, secured.principal(*rights_of("move")), tmp_path) as (cluster, journal):
        eventually(lambda: looked(cluster, journal), within=30, errors=(ClusterError,))
        carried_out(cluster, journal, tmp_path, "rebalance")
        elect_preferred_leaders(cluster, journal, who=WHO)
        secured.sandbox.kill(1)
        try:
            detector = FailureDetector(cluster, journal, SETTINGS, WHO)

            def due() -> tuple[int, ...]:
                verdict = detector.poll()
                assert verdict.failed == (1,)
                return verdict.failed

            failed = eventually(due, within=60, errors=(ClusterError,))
            carried_out(cluster, journal, tmp_path, "heal", *failed)
            assert all(1 not in each.replicas for each in cluster.snapshot().partitions.values())
        finally:
            secured.sandbox.restart(1)


def test_without_throttles_reading_settings_is_enough(secured: Secured, tmp_path: Path) -> None:
    """What the page says of `throttle` 0: DescribeConfigs in place of AlterConfigs, for a plan and its rollback."""
    secured.sandbox.create_topics("unthrottled", partitions=4, assignments={number: [1, 2, 3] for number in range(4)})
    rights = {_narrower(entry) if entry[1] == "AlterConfigs" else entry for entry in rights_of("move")}
    with opened(secured, secured.principal(*rights), tmp_path) as (cluster, journal):
        eventually(lambda: looked(cluster, journal), within=30, errors=(ClusterError,))
        settings = replace(SETTINGS, throttle=0)
        digest = carried_out(cluster, journal, tmp_path, "rebalance", settings=settings)
        undo = CancelRunner(cluster, journal, digest, settings, WHO, scope="plan", reason="a test")
        assert to_the_end(undo).ended
        outcomes = WatchTrigger("kafka")._watch._detection.poll(access_to(cluster, journal, settings))
        assert [isinstance(result, Exception) for _, result in outcomes] == [False] * 3


def access_to(cluster: KafkaCluster, journal: Journal, settings: Settings) -> ClusterSession:
    access = ClusterConfig("kafka", settings, "/nowhere", {}, "sqlite:////nowhere")
    return ClusterSession(access, cluster, journal)


def _narrower(entry: Entry) -> Entry:
    """The right that this one implies."""
    return next(narrow for narrow, wide in IMPLIED.items() if wide == entry)


def refusal(cluster: KafkaCluster, folder: Path) -> str:
    """What a snapshot is refused with."""
    with pytest.raises(RequestError) as raised:
        take_snapshot(cluster, str(folder / "hidden"), failed=(), now_ms=1)
    return str(raised.value)


def test_a_topic_that_may_not_be_described_is_noticed_and_refuses_plans(secured: Secured, tmp_path: Path) -> None:
    secured.sandbox.create_topics(["seen", "guarded"], partitions=1, replication_factor=2)
    name = secured.principal(*(entry for entry in rights_of("move") if entry[0] == "Cluster"))
    secured.allow(name, ("Topic seen", "Describe"), ("Topic seen", "DescribeConfigs"))
    with opened(secured, name, tmp_path) as (cluster, journal):
        eventually(lambda: same(cluster.snapshot().topics, {"seen"}), within=30, errors=(ClusterError,))
        told = refusal(cluster, tmp_path)
        assert told.startswith("Nothing was planned: Kafka does not let us describe guarded")
        assert "Grant our principal DESCRIBE on every topic" in told
        assert cluster.hidden_topics(["guarded", "seen"]) == {"guarded"}
        health, _ = check_health(cluster, journal, thorough=True)
        assert "guarded" in (health.hidden_topics or ())
    with KafkaCluster({"bootstrap_servers": secured.sandbox.bootstrap}) as all_seeing:
        assert all_seeing.hidden_topics(["guarded", "none"]) == frozenset()


def test_a_topic_on_which_there_is_no_right_is_answered_as_the_simulator_does(secured: Secured) -> None:
    secured.sandbox.create_topics("shown", assignments={0: [1, 2]})
    secured.sandbox.create_topics("hidden", assignments={0: [1, 2]})
    on_cluster = [entry for entry in rights_of("move") if entry[0] == "Cluster"]
    on_topic = [("Topic shown", right) for right in ("Describe", "DescribeConfigs", "AlterConfigs")]
    with KafkaCluster(secured.config(secured.principal(*on_cluster, *on_topic))) as cluster:
        eventually(
            lambda: assert_hides(cluster, "shown", "hidden", "missing"), within=30, errors=(ClusterError, KeyError)
        )


#: A request that is refused without the right; for hidden topics, what is missing then.
PROBES: dict[Entry, Callable[[KafkaCluster], Any]] = {
    ("Cluster", "Describe"): lambda cluster: cluster.log_dirs([1]),
    ("Cluster", "DescribeConfigs"): lambda cluster: cluster.broker_configs([1], ["broker.session.timeout.ms"]),
    ("Cluster", "Alter"): lambda cluster: cluster.alter({TopicPartition("needed", 0): (1, 2)}),
    ("Cluster", "AlterConfigs"): lambda cluster: raised(
        cluster.change_broker_configs({1: [ConfigChange("follower.replication.throttled.rate", ConfigOp.DELETE)]})[1]
    ),
    ("Topic *", "Describe"): lambda cluster: describe_topic(cluster, "needed"),
    ("Topic *", "DescribeConfigs"): lambda cluster: cluster.topic_configs(["needed"], ["min.insync.replicas"]),
    ("Topic *", "AlterConfigs"): lambda cluster: raised(
        cluster.change_topic_configs({"needed": [ConfigChange("retention.ms", ConfigOp.DELETE)]})["needed"]
    ),
    ("Topic *", "Create"): lambda cluster: raised(cluster.create_topic("none", 1, 1)),
    ("Topic *", "Alter"): lambda cluster: raised(cluster.create_partitions("needed", 2)),
}


def raised(answer: Exception | None) -> None:
    if answer is not None:
        raise answer


def test_every_right_of_the_page_is_needed(secured: Secured) -> None:
    assert {(resource, operation) for resource, operation, _ in ROWS} == PROBES.keys()
    secured.sandbox.create_topics("needed", partitions=1, replication_factor=2)
    name = secured.principal(*PROBES)
    for entry, probe in PROBES.items():
        without = [entry, *([IMPLIED[entry]] if entry in IMPLIED else [])]
        secured.forbid(name, *without)
        eventually(partial(_assert_named, secured, name, probe, entry), within=30, errors=(ClusterError,))
        secured.allow(name, *without)


def _assert_named(secured: Secured, name: str, probe: Callable[[KafkaCluster], Any], entry: Entry) -> None:
    with KafkaCluster(secured.config(name)) as cluster, pytest.raises(KafkaRefused) as refused:
        probe(cluster)
    assert refused.value.code == (31 if entry[0] == "Cluster" else 29)
    assert str(refused.value).endswith(f"; grant our principal {advice(entry)}, as docs/permissions.md says.")


def advice(entry: Entry) -> str:
    resource, operation = entry
    return f"{operation} on {'the cluster' if resource == 'Cluster' else 'every topic'}"


_rates = itertools.count(SETTINGS.throttle, -1000)


class Doing:
    """A workflow of each set of rights, once through, by one principal."""

    def __init__(self, cluster: KafkaCluster, journal: Journal, folder: Path, topic: str) -> None:
        self.cluster, self.journal, self.folder, self.topic = cluster, journal, folder, topic

    def look(self) -> None:
        """Of a topic that has a dead replica: only of such are the settings read."""
        health, _ = check_health(self.cluster, self.journal, thorough=True)
        if health.hidden_topics:
            raise RequestError(health_message(health))
        assert self.topic in {each.topic for each in health.under_replicated}

    def move(self) -> None:
        self._carry_out()

    def fill(self) -> None:
        self.journal.rows(DEFERRED_PARTITIONS).put(self.topic, DeferredPartitions(3), None)
        add_deferred_partitions(self.cluster, self.journal, WHO)
        self._carry_out()

    def create(self) -> None:
        """One that Kafka does not confirm in time, with settings; and the same once more.

        Each try has a topic of its own: one may create it, and fail by a right that a broker does not know of yet.
        """
        wanted = TopicSpec(f"{self.topic}-made-{secrets.token_hex(4)}", 1, 2, {"retention.ms": "60000"})
        create = self.cluster.create_topic

        def late(*given: Any, **more: Any) -> KafkaRefused | None:
            refused = create(*given, **more)
            if refused is None:
                raise KafkaTimeout("No answer came in time.")
            return refused

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.cluster, "create_topic", late)
            assert not create_topic(self.cluster, self.journal, wanted, allowed=False, who=WHO).existed
        assert create_topic(self.cluster, self.journal, wanted, allowed=False, who=WHO).existed

    def extend(self) -> None:
        assert add_partitions(self.cluster, self.journal, self.topic, 3, later=False, who=WHO).done

    def _carry_out(self) -> None:
        """Move the topic's first partition to another broker, with throttles."""
        where = f"{self.folder}/{secrets.token_hex(4)}"
        take_snapshot(self.cluster, where, failed=(), now_ms=self.journal.now_ms())
        name = TopicPartition(self.topic, 0)
        before = self.cluster.snapshot([self.topic]).partitions[name].replicas
        (other,) = {1, 2, 3} - set(before)
        move = Move(*name, before, (other, before[1]), 0, 0, "given")
        folder: Any = self.cluster  # as far as a plan's folder needs one
        plan = plan_of(folder, [move], operation="apply")
        # Stricter than what a plan that failed has left: that would not have to be changed.
        settings = replace(SETTINGS, throttle=next(_rates))
        record = publish_plan(ClusterContext(self.cluster, self.journal, settings, WHO), plan)
        runner = PlanRunner(ClusterContext(self.cluster, self.journal, settings, WHO), record.digest)
        progress = step_until(runner, lambda told: told.ended or "grant our principal" in told.sentence)
        if progress.completed != 1:
            raise RequestError(progress.sentence)  # after some more attempts the plan waits for a person


@dataclass(frozen=True)
class Case:
    """A principal that has all rights of the set `kind` but `lacks`, and a topic of its own."""

    kind: str
    lacks: Entry | None
    name: str
    topic: str

    @classmethod
    def made(cls, secured: Secured, kind: str, lacks: Entry | None) -> Case:
        topic = f"{kind}-without-{'-'.join(lacks or ('none',)).replace(' *', '')}"
        secured.sandbox.create_topics(topic, assignments={0: [1, 2], 1: [2, 4 if kind == "look" else 3]})
        # What the missing right implies stays: else that would be missed first.
        narrower = [narrow for narrow, wide in IMPLIED.items() if wide == lacks]
        rights = [each for each in {*rights_of(kind), *narrower} if each != lacks]
        return cls(kind, lacks, secured.principal(*rights), topic)


def test_the_page_has_rights_for_each_set() -> None:
    assert {name for _, _, names in ROWS for name in names.split(", ")} == {*SETS}


@pytest.mark.parametrize("kind", SETS)
def test_a_workflow_of_each_set_is_done_with_its_rights_and_fails_without_any_of_them_by_its_name(
    secured: Secured, tmp_path: Path, kind: str
) -> None:
    cases = [Case.made(secured, kind, lacks) for lacks in (None, *rights_of(kind))]
    with down(secured, 4) if kind == "look" else nullcontext():
        for case in cases:
            folder = tmp_path / case.topic
            folder.mkdir()  # with a journal of its own: a plan that fails keeps the cluster to itself
            with opened(secured, case.name, folder) as (cluster, journal):
                doing = getattr(Doing(cluster, journal, folder, case.topic), case.kind)
                if case.lacks is None:
                    eventually(doing, within=60, errors=(ClusterError, RequestError))
                else:
                    eventually(partial(_assert_fails, doing, case.lacks), within=20)


@contextmanager
def down(secured: Secured, broker: int) -> Iterator[None]:
    secured.sandbox.kill(broker)
    try:
        yield
    finally:
        secured.sandbox.restart(broker)


def _assert_fails(doing: Callable[[], None], entry: Entry) -> None:
    with pytest.raises((ClusterError, RequestError)) as failed:
        doing()
    assert f"rant our principal {advice(entry)}, as docs/permissions.md".lower() in str(failed.value).lower()


def test_a_client_with_a_certificate_may_do_what_its_name_may(secured: Secured, tmp_path: Path) -> None:
    secured.sandbox.create_topics("certified", partitions=2, replication_factor=2)
    secured.allow("CN=steward", *rights_of("look"))
    config = secured.config_with_certificate("steward")
    with KafkaCluster(config) as cluster, open_journal(f"sqlite:///{tmp_path}/j.db", cluster.cluster_id) as journal:
        eventually(lambda: looked(cluster, journal), within=30, errors=(ClusterError,))
        with pytest.raises(KafkaRefused, match=r"\(error 31\)"):
            cluster.alter({TopicPartition("certified", 0): (3, 4)})


@pytest.mark.parametrize("without", ["ssl_certificate_pem", "ssl_ca_pem"])
def test_a_certificate_that_is_not_accepted_is_named_at_once(secured: Secured, without: str) -> None:
    config = secured.config_with_certificate("nobody")
    began_s = time.monotonic()
    with pytest.raises(AuthenticationFailed, match=r"^A certificate was not accepted at .*; check ssl_cafile, which"):
        KafkaCluster({name: value for name, value in config.items() if name != without})
    assert time.monotonic() - began_s < 6  # of 8 s that it would try
