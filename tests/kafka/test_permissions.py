"""docs/permissions.md: its ACLs are enough for each workflow, by SCRAM and by certificate; each is needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.errors import AuthenticationFailed, ClusterError, KafkaRefused, RequestError
from kafka_steward.execution.electing import elect_preferred
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import Runner
from kafka_steward.execution.snapshot import take_snapshot
from kafka_steward.execution.watching.detector import Detector
from kafka_steward.execution.watching.examining import examine
from kafka_steward.journal.open import Journal, open_journal
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.settings import Settings
from tests.eventually import eventually
from tests.planned import plan_folder
from tests.secured import ROWS, Entry, Secured, rights_of, secured
from tests.stepping import to_the_end
from tests.worlds import WHO

__all__ = ["secured"]

pytestmark = pytest.mark.ci
SETTINGS = Settings(heal_failure_interval=1, throttle=20_000_000, max_failed_fraction=0.5, min_free=0.0)


@contextmanager
def opened(secured: Secured, name: str, folder: Path) -> Iterator[tuple[KafkaCluster, Journal]]:
    with (
        KafkaCluster(secured.config(name)) as cluster,
        open_journal(f"sqlite:///{folder}/journal.db", cluster.cluster_id) as journal,
    ):
        yield cluster, journal


def carried_out(cluster: KafkaCluster, journal: Journal, folder: Path, operation: str, *failed: int) -> int:
    """Snapshot, plan and all its moves, with throttles; how many partitions moved."""
    where = folder / operation
    take_snapshot(cluster, f"{where}/snapshot", failed=failed, now_ms=journal.now_ms())
    plan = plan_folder(where / "snapshot", where / "plan", operation)
    snapshot = read_snapshot(f"{where}/snapshot")
    record = publish_plan(cluster, journal, plan, settings=SETTINGS, who=WHO, snapshot=snapshot)
    progress = to_the_end(Runner(cluster, journal, record.digest, SETTINGS, WHO))
    assert progress.completed == len(plan.moves), progress.sentence
    return progress.completed


def test_what_the_page_lists_is_enough_to_look_and_for_nothing_else(secured: Secured, tmp_path: Path) -> None:
    secured.sandbox.create_topics("look", partitions=2, replication_factor=2)
    with opened(secured, secured.principal(*rights_of("look")), tmp_path) as (cluster, journal):
        health, _ = eventually(lambda: looked(cluster, journal), within=30, errors=(ClusterError,))
        assert health.hidden_topics == ()
        assert Detector(cluster, journal, SETTINGS, WHO).look().down == ()
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
    found = examine(cluster, journal, thorough=True)
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
        assert carried_out(cluster, journal, tmp_path, "rebalance") > 0
        elect_preferred(cluster, journal, who=WHO)
        secured.sandbox.kill(1)
        try:
            detector = Detector(cluster, journal, SETTINGS, WHO)

            def due() -> tuple[int, ...]:
                verdict = detector.look()
                assert verdict.failed == (1,)
                return verdict.failed

            failed = eventually(due, within=60, errors=(ClusterError,))
            assert carried_out(cluster, journal, tmp_path, "heal", *failed) > 0
            assert all(1 not in each.replicas for each in cluster.snapshot().partitions.values())
        finally:
            secured.sandbox.restart(1)


def test_topics_are_created_and_extended_with_what_the_page_lists(secured: Secured, tmp_path: Path) -> None:
    with opened(secured, secured.principal(*rights_of("create")), tmp_path) as (cluster, _):
        assert eventually(lambda: cluster.create_topic("made", 1, 2), within=30, errors=(ClusterError,)) is None
        eventually(lambda: more(cluster), within=30)


def more(cluster: KafkaCluster) -> None:
    assert cluster.create_partitions("made", 2) is None


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
        health, _ = examine(cluster, journal, thorough=True)
        assert "guarded" in (health.hidden_topics or ())
    with KafkaCluster({"bootstrap_servers": secured.sandbox.bootstrap}) as all_seeing:
        assert all_seeing.hidden_topics(["guarded", "none"]) == frozenset()


#: A request that is refused without the right; for hidden topics, what is missing then.
PROBES: dict[Entry, Callable[[KafkaCluster], Any]] = {
    ("Cluster", "Describe"): lambda cluster: cluster.log_dirs([1]),
    ("Cluster", "DescribeConfigs"): lambda cluster: cluster.broker_configs([1], ["broker.session.timeout.ms"]),
    ("Cluster", "Alter"): lambda cluster: cluster.alter({TopicPartition("needed", 0): (1, 2)}),
    ("Cluster", "AlterConfigs"): lambda cluster: raised(
        cluster.change_broker_configs({1: [ConfigChange("follower.replication.throttled.rate", ConfigOp.DELETE)]})[1]
    ),
    ("Topic *", "Describe"): lambda cluster: cluster.snapshot(["needed"]),
    ("Topic *", "DescribeConfigs"): lambda cluster: cluster.topic_configs(["needed"], ["min.insync.replicas"]),
    ("Topic *", "AlterConfigs"): lambda cluster: raised(
        cluster.change_topic_configs({"needed": [ConfigChange("retention.ms", ConfigOp.DELETE)]})["needed"]
    ),
    ("Topic *", "Create"): lambda cluster: raised(cluster.create_topic("none", 1, 1)),
    ("Topic *", "Alter"): lambda cluster: raised(cluster.create_partitions("needed", 2)),
}
#: Kafka takes the wider right for the narrower one.
IMPLIED = {
    ("Cluster", "Describe"): ("Cluster", "Alter"),
    ("Cluster", "DescribeConfigs"): ("Cluster", "AlterConfigs"),
    ("Topic *", "Describe"): ("Topic *", "Alter"),
    ("Topic *", "DescribeConfigs"): ("Topic *", "AlterConfigs"),
}


def raised(answer: Exception | None) -> None:
    if answer is not None:
        raise answer


def same(found: object, expected: object) -> None:
    assert found == expected


def code_of(secured: Secured, name: str, probe: Callable[[KafkaCluster], Any]) -> int:
    """Kafka's error code for the probe by this principal, 0 when it is granted."""
    with KafkaCluster(secured.config(name)) as cluster:
        try:
            probe(cluster)
        except KafkaRefused as refused:
            return refused.code
    return 0


def test_every_right_of_the_page_is_needed(secured: Secured) -> None:
    assert {(resource, operation) for resource, operation, _ in ROWS} == PROBES.keys()
    secured.sandbox.create_topics("needed", partitions=1, replication_factor=2)
    name = secured.principal(*PROBES)
    for entry, probe in PROBES.items():
        without = [entry, *([IMPLIED[entry]] if entry in IMPLIED else [])]
        secured.forbid(name, *without)
        wanted = {31} if entry[0] == "Cluster" else {29}
        eventually(partial(_is_refused, secured, name, probe, wanted), within=30, errors=(ClusterError,))
        secured.allow(name, *without)


def _is_refused(secured: Secured, name: str, probe: Callable[[KafkaCluster], Any], wanted: set[int]) -> None:
    assert code_of(secured, name, probe) in wanted


def test_a_client_with_a_certificate_may_do_what_its_name_may(secured: Secured, tmp_path: Path) -> None:
    secured.sandbox.create_topics("certified", partitions=2, replication_factor=2)
    secured.allow("CN=steward", *rights_of("look"))
    config = secured.config_with_certificate("steward")
    with KafkaCluster(config) as cluster, open_journal(f"sqlite:///{tmp_path}/j.db", cluster.cluster_id) as journal:
        eventually(lambda: looked(cluster, journal), within=30, errors=(ClusterError,))
        with pytest.raises(KafkaRefused, match=r"\(error 31\)"):
            cluster.alter({TopicPartition("certified", 0): (3, 4)})


@pytest.mark.parametrize("without", ["ssl_certfile", "ssl_cafile"])
def test_a_certificate_that_is_not_accepted_is_told_at_once(secured: Secured, without: str) -> None:
    config = secured.config_with_certificate("nobody")
    began_s = time.monotonic()
    with pytest.raises(AuthenticationFailed, match=r"^A certificate was not accepted at .*; check ssl_cafile, which"):
        KafkaCluster({name: value for name, value in config.items() if name != without})
    assert time.monotonic() - began_s < 6  # of 8 s that it would try
