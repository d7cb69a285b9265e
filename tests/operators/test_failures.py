"""What is to be healed, by brokers and by disks, and what its snapshot says; and what people are told of the watch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import AuthenticationFailed, JournalUnreachable
from kafka_steward.execution.load import look
from kafka_steward.execution.watch.alerts import ALERTS, Condition, list_unnotified, update_alerts
from kafka_steward.execution.watch.failure_detector import DetectionResult, FailureDetector
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import ReassignmentsDisabled
from kafka_steward.journal.observed import PartitionRate
from kafka_steward.journal.store import Journal
from kafka_steward.operators import checks as operator_module
from kafka_steward.operators.alerts import SendAlertsOperator
from kafka_steward.operators.checks import ReportHealthOperator
from kafka_steward.operators.failures import FindFailuresOperator, ReportFailureOperator
from kafka_steward.operators.snapshot import SnapshotClusterOperator
from kafka_steward.planning.files.formats import read_snapshot
from tests.airflow_home import context
from tests.documents import create_document
from tests.memory_mailbox import MemoryMailbox
from tests.operators.simulated import CONN_ID, Cluster, MakeCluster
from tests.simulated_plan import memory_journal
from tests.simulator import Simulator

Found = Callable[..., dict[str, Any]]


def verdict(*failed: int, outage: bool = False) -> DetectionResult:
    return DetectionResult(
        due=(), failed=failed, waiting={}, handled=(), cleared=(), down=failed, outage=outage, sentence="So it is.",
        now_ms=1,
    )  # fmt: skip


@pytest.fixture
def off() -> MemoryMailbox:
    """The journal's tree, in which KIP-236's switch may be."""
    return MemoryMailbox(lambda: 1)


@pytest.fixture
def overrides(monkeypatch: pytest.MonkeyPatch, off: MemoryMailbox) -> list[dict[str, Any]]:
    """The overrides of each hook that is opened; what it opens holds nothing."""
    seen: list[dict[str, Any]] = []
    journal = SimpleNamespace(mailbox=off)
    monkeypatch.setattr("kafka_steward.execution.watch.upkeep.run_chores", lambda _: [])

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
            FailureDetector, "poll", lambda _, announce, **__: given if not announce else pytest.fail("announced")
        )
        return FindFailuresOperator(task_id="find", conn_id="kafka", **more).execute(context())

    return find


def test_all_that_failed_unless_it_is_narrowed(found: Found) -> None:
    assert found(verdict(3, 4))["brokers"] == [3, 4]
    assert found(verdict(3, 4), brokers=[4, 9])["brokers"] == [4]


def test_nothing_to_heal_is_skipped_with_the_reason(found: Found) -> None:
    with pytest.raises(AirflowSkipException, match=r"Nothing is to be healed now\. So it is\."):
        found(verdict(), on_failure_detected=lambda _: pytest.fail("nothing was detected"))
    waits = replace(verdict(), waiting={3: 5_000})
    with pytest.raises(AirflowSkipException, match=r"So it is\. To heal before that, run this with ignore_grace\.$"):
        found(waits)
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


def test_nothing_is_healed_while_reassignments_are_switched_off(found: Found, off: MemoryMailbox) -> None:
    create_document(off, paths.REASSIGN_CANCEL, ReassignmentsDisabled("ann", "an audit").to_json())
    with pytest.raises(AirflowSkipException, match=r"^Nothing is healed while reassignments are disabled by ann since"):
        found(verdict(3), on_failure_detected=lambda _: pytest.fail("nothing begins"))
    with pytest.raises(AirflowSkipException, match=r"^Nothing is to be healed now"):
        found(verdict())


def test_an_outage_is_notified_and_not_healed(found: Found) -> None:
    told: list[Any] = []
    with pytest.raises(AirflowFailException, match=r"So it is\."):
        found(verdict(outage=True), on_not_healable=told.append)
    assert told[0]["kafka_steward"]["event"] == "not_healable"
    assert found(verdict(3, outage=True), on_not_healable=told.append)["brokers"] == [3], "a person reported it"
    assert len(told) == 1


def test_ignoring_the_grace_period_is_an_override(found: Found, overrides: list[dict[str, Any]]) -> None:
    found(verdict(3))
    found(verdict(3), ignore_grace=True)
    assert overrides == [{}, {"heal_failure_interval": 0}]


def test_a_wrong_password_is_one_sentence_and_detects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: StewardHook) -> Any:
        raise AuthenticationFailed("Authentication failed at a:9092: correct the user and password.")

    monkeypatch.setattr(StewardHook, "open", refused)
    told: list[Any] = []
    with pytest.raises(AirflowFailException, match=r"^Authentication failed"):
        FindFailuresOperator(task_id="find", conn_id="kafka", on_failure_detected=told.append).execute(context())
    assert told == []


def cluster(make_cluster: MakeCluster, tmp_path: Path, **settings: Any) -> Cluster:
    given = {"workspace": str(tmp_path), "heal_failure_interval": 0, "max_failed_fraction": 0.5, **settings}
    made = make_cluster("1a 2b 3c 4a", "t: 123 231", **given)
    made.fail_disk(2, TopicPartition("t", 0))
    return made


def test_a_heal_takes_up_a_failed_log_directory_if_the_connection_says_so(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster(make_cluster, tmp_path, heal_failed_disks=True)
    found = FindFailuresOperator(task_id="find_failures", conn_id=CONN_ID).execute(context())
    assert found["brokers"] == [2]
    taken = SnapshotClusterOperator(task_id="snapshot", conn_id=CONN_ID, failed_brokers=[2]).execute(context())
    snapshot = read_snapshot(taken["uri"])
    assert snapshot.partitions["offline"].to_pylist() == [[2], None]
    assert {row["broker"]: row["state"] for row in snapshot.brokers.to_pylist()}[2] == "live"


def test_what_is_found_is_in_the_snapshot_that_the_same_task_takes(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster(make_cluster, tmp_path).kill(3)
    notified: list[Any] = []
    find = FindFailuresOperator(task_id="find", conn_id=CONN_ID, snapshot=True, on_failure_detected=notified.append)
    found = find.execute(context())
    snapshot = read_snapshot(found["uri"])
    assert snapshot.digest == found["digest"]
    states = {row["broker"]: row["state"] for row in snapshot.brokers.to_pylist()}
    assert {broker for broker, state in states.items() if state == "failed"} == set(found["brokers"]) == {3}
    assert len(notified) == 1


def test_people_are_notified_once_although_the_snapshot_takes_a_retry(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    made = cluster(make_cluster, tmp_path)
    made.kill(3)
    made.create("secret", [(1, 3)])
    made.hidden.add("secret")
    notified: list[Any] = []
    find = FindFailuresOperator(task_id="find", conn_id=CONN_ID, snapshot=True, on_failure_detected=notified.append)
    with pytest.raises(AirflowFailException, match="does not let us describe secret"):
        find.execute(context())
    made.hidden.clear()
    find.execute(context())
    assert len(notified) == 1


def test_a_heal_leaves_it_alone_and_names_it_by_default(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster(make_cluster, tmp_path)
    with pytest.raises(AirflowSkipException, match=r"log directory /disk-2 has failed, with 1 replica; no heal"):
        FindFailuresOperator(task_id="find_failures", conn_id=CONN_ID).execute(context())
    taken = SnapshotClusterOperator(task_id="snapshot", conn_id=CONN_ID, failed_brokers=[2]).execute(context())
    assert read_snapshot(taken["uri"]).partitions["offline"].null_count == 2


def test_a_reported_log_directory_is_healed_by_default(make_cluster: MakeCluster, tmp_path: Path) -> None:
    made = cluster(make_cluster, tmp_path, heal_failure_interval=600)
    report = ReportFailureOperator(
        task_id="report", conn_id=CONN_ID, broker="2", log_dirs=["/disk-2"], reason="it clicks"
    )
    assert report.execute(context()).startswith("The log directory /disk-2 of broker 2 is reported as failed")
    found = FindFailuresOperator(task_id="find_failures", conn_id=CONN_ID).execute(context())
    assert found["brokers"] == [2]
    made.kill(3)
    taken = SnapshotClusterOperator(task_id="snapshot", conn_id=CONN_ID, failed_brokers=[2, 3]).execute(context())
    snapshot = read_snapshot(taken["uri"])
    assert snapshot.partitions["offline"].to_pylist() == [[2], None]
    states = {row["broker"]: row["state"] for row in snapshot.brokers.to_pylist()}
    assert (states[2], states[3]) == ("live", "failed")


def test_a_reported_broker_is_found_at_once_and_a_live_one_is_refused_for_good(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    made = cluster(make_cluster, tmp_path, heal_failure_interval=600)
    made.kill(3)
    told = ReportFailureOperator(task_id="report", conn_id=CONN_ID, broker=3).execute(context())
    assert told.startswith("Broker 3 is reported as failed")
    assert FindFailuresOperator(task_id="find_failures", conn_id=CONN_ID).execute(context())["brokers"] == [3]
    for broker, words in ((1, "Broker 1 was not reported as failed: it is live"), ("one", "'one' is not a broker id")):
        with pytest.raises(AirflowFailException, match=words):
            ReportFailureOperator(task_id="report", conn_id=CONN_ID, broker=broker).execute(context())


def test_a_hidden_topic_fails_the_snapshot_for_good_and_is_counted_by_health(
    make_cluster: MakeCluster, tmp_path: Path, gauges: dict[str, tuple[float, object]]
) -> None:
    made = cluster(make_cluster, tmp_path)
    made.create("secret", [(1, 3)])
    made.hidden.add("secret")
    with pytest.raises(
        AirflowFailException, match=r"describe secret, and a plan would omit the replicas of secret on brokers 1 and 3"
    ):
        SnapshotClusterOperator(task_id="snapshot", conn_id=CONN_ID).execute(context())
    facts = ReportHealthOperator(task_id="health", conn_id=CONN_ID).execute(context())
    assert facts["above"] == ["under_replicated_partitions", "failed_log_dirs", "hidden_topics"]
    assert gauges["kafka_steward.cluster.hidden_topics"][0] == 1
    assert gauges["kafka_steward.cluster.failed_log_dirs"][0] == 1


@pytest.mark.parametrize("capacity", ["2=2, 3=0.5", {"2": 2, "3": 0.5}])
def test_a_snapshot_has_the_capacities_of_the_connection(
    make_cluster: MakeCluster, tmp_path: Path, capacity: Any
) -> None:
    make_cluster("1a 2b 3c", "t: 12 23", workspace=str(tmp_path), capacity=capacity)
    taken = SnapshotClusterOperator(task_id="snapshot", conn_id=CONN_ID).execute(context())
    assert read_snapshot(taken["uri"]).brokers["capacity"].to_pylist() == [1.0, 2.0, 0.5]


def test_a_snapshot_has_the_rates_that_the_watch_has_kept(
    make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_cluster("1a 2b 3c", "t: 12 23", workspace=str(tmp_path))
    rate = PartitionRate("t", 1, made.snapshot().partitions[TopicPartition("t", 1)].topic_id, 5)
    monkeypatch.setattr(look, "known_rates", lambda _: {TopicPartition("t", 1): rate})
    taken = SnapshotClusterOperator(task_id="snapshot", conn_id=CONN_ID).execute(context())
    assert read_snapshot(taken["uri"]).partitions["bytes_per_s"].to_pylist() == [None, 5.0]


FOUND = [Condition("outage", "Two brokers are down."), Condition("stuck", "Plan 3f2a is stuck.", "3f2a91")]


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    simulator = Simulator.of("1a", "t: 1")
    journal = memory_journal(simulator)
    monkeypatch.setattr(StewardHook, "cluster_id", lambda _: "simulated")
    monkeypatch.setattr(StewardHook, "journal", lambda *_: journal)
    return journal


def send_alerts(*notifiers: Any) -> Any:
    return SendAlertsOperator(task_id="alert", conn_id="kafka", on_alert=notifiers).execute(context())


def test_each_alert_is_sent_once_and_so_is_its_end(journal: Journal) -> None:
    told: list[Any] = []
    update_alerts(journal, FOUND, journal.now_ms())
    assert send_alerts(lambda given: told.append(given["kafka_steward"])) == [each.sentence for each in FOUND]
    assert [(each["event"], each["conn_id"], each.get("digest")) for each in told] == [
        ("outage", "kafka", None),
        ("stuck", "kafka", "3f2a91"),
    ]
    with pytest.raises(AirflowSkipException):
        send_alerts(told.append)
    update_alerts(journal, FOUND[:1], journal.now_ms())
    send_alerts(lambda given: told.append(given["kafka_steward"]))
    assert (told[-1]["event"], told[-1]["of"], told[-1]["digest"]) == ("recovered", "stuck", "3f2a91")
    assert [row.key for row in journal.rows(ALERTS).all()] == ["outage"]


def test_an_alert_that_no_notifier_could_send_is_sent_again(journal: Journal) -> None:
    def broken(_: Any) -> None:
        raise ConnectionError

    update_alerts(journal, FOUND[:1], journal.now_ms())
    with pytest.raises(AirflowException, match="No notifier could send"):
        send_alerts(broken, broken)
    assert len(list_unnotified(journal)) == 1
    told: list[Any] = []
    send_alerts(broken, told.append)
    assert len(told) == 1
    assert list_unnotified(journal) == []


def test_while_the_journal_is_away_people_are_notified_of_what_the_event_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise JournalUnreachable("It is away.")

    monkeypatch.setattr(StewardHook, "cluster_id", away)
    found = {"kind": "watch_failing", "subject": "alerts", "sentence": "The journal is away."}
    mine = SimpleNamespace(extra={"payload": {"conn_id": "kafka", "unrecorded": [found]}}, timestamp=0)
    others = SimpleNamespace(extra={"payload": {"conn_id": "other", "unrecorded": [found]}}, timestamp=0)
    told: list[Any] = []
    given = context()
    operator = SendAlertsOperator(task_id="alert", conn_id="kafka", on_alert=told.append)
    with pytest.raises(JournalUnreachable):
        operator.execute(given)
    given["dag_run"].consumed_asset_events = [mine, mine, others]
    assert operator.execute(given) == ["The journal is away."]
    assert [each["kafka_steward"]["event"] for each in told] == ["watch_failing"]


UNDER_REPLICATED = "kafka_steward.cluster.under_replicated_partitions"
Gauges = dict[str, tuple[float, Any]]


def report(**given: Any) -> dict[str, Any]:
    operator = ReportHealthOperator(task_id="health", conn_id=CONN_ID, **{"sample_s": 0, **given})
    return operator.execute(context(task_id="health"))


def unexpected(_: Any) -> None:
    pytest.fail("nobody is to be notified")


def test_a_healthy_cluster_is_reported_and_measured_and_nobody_is_notified(
    make_cluster: MakeCluster, gauges: Gauges
) -> None:
    make_cluster("1a 2b 3c", "orders: 123 231")
    facts = report(when_unhealthy="fail", on_unhealthy=unexpected)
    assert (facts["healthy"], facts["above"]) == (True, [])
    assert facts["sentence"].startswith("Of 2 partitions 0 are under-replicated, 0 are under min ISR, 0 are offline.")
    assert {name: gauge for name, gauge in gauges.items() if ".broker." not in name} == {
        f"kafka_steward.cluster.{name}": (value, {"conn_id": CONN_ID}) for name, value in facts["measures"].items()
    }
    assert gauges[UNDER_REPLICATED] == (0, {"conn_id": CONN_ID})


def test_an_unhealthy_cluster_is_notified_of_and_the_task_succeeds_by_default(
    make_cluster: MakeCluster, gauges: Gauges
) -> None:
    make_cluster("1a 2b 3c", "orders: 123 231").kill(3)
    notified: list[Any] = []
    facts = report(on_unhealthy=notified.append)
    assert (facts["healthy"], facts["above"]) == (False, ["under_replicated_partitions"])
    assert facts["measures"]["under_replicated_partitions"] == 2
    assert [each["kafka_steward"] for each in notified] == [{"event": "unhealthy", **facts}]
    assert gauges[UNDER_REPLICATED][0] == 2


def test_the_partitions_are_named_in_the_result_for_the_notification_and_in_the_log(
    make_cluster: MakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    make_cluster("1a 2b 3c", "orders: 123 231").kill(3)
    notified: list[Any] = []
    facts = report(on_unhealthy=notified.append)
    names = {"under_replicated": ["orders-0", "orders-1"], "under_min_isr": [], "offline": [], "reassigning": []}
    names["rack_violations"] = []
    assert facts["partitions"] == notified[0]["kafka_steward"]["partitions"] == names
    assert "under replicated, 1 to 2 of 2: orders-0, orders-1" in capsys.readouterr().out


def test_where_it_is_to_fail_an_unhealthy_cluster_fails_the_task_for_good_after_the_notification(
    make_cluster: MakeCluster, gauges: Gauges
) -> None:
    make_cluster("1a 2b 3c", "orders: 123 231").kill(3)
    notified: list[Any] = []
    with pytest.raises(AirflowFailException) as failed:
        report(when_unhealthy="fail", on_unhealthy=notified.append)
    assert str(failed.value) == (
        "under_replicated_partitions: above the limit. Of 2 partitions 2 are under-replicated (orders-0, orders-1), "
        "0 are under min ISR, 0 are offline. None is being reassigned. Broker 3 is down."
    )
    assert [each["kafka_steward"]["event"] for each in notified] == ["unhealthy"]
    assert gauges[UNDER_REPLICATED][0] == 2, "what fails is measured all the same"


def test_a_reassignment_in_progress_neither_notifies_nor_fails_the_task(
    make_cluster: MakeCluster, gauges: Gauges
) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "orders: 123 231")
    cluster.alter({TopicPartition("orders", 0): (1, 2, 4)})
    facts = report(when_unhealthy="fail", on_unhealthy=unexpected)
    assert (facts["healthy"], facts["measures"]["reassigning_partitions"]) == (True, 1)
    assert gauges[UNDER_REPLICATED][0] == 0


def test_the_limits_that_are_given_replace_the_usual_ones(make_cluster: MakeCluster) -> None:
    make_cluster("1a 2b 3c", "orders: 123 231").kill(3)
    assert report(limits={"under_replicated_partitions": 2}, when_unhealthy="fail")["above"] == []
    assert report(limits={"failed_brokers": 0})["above"] == ["failed_brokers"]


def test_while_something_is_reassigned_bytes_per_second_are_measured_over_the_sample(
    make_cluster: MakeCluster, gauges: Gauges, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster("1a 2b 3c 4a", "orders: 123 231")
    cluster.bandwidth = 20
    cluster.alter({TopicPartition("orders", 0): (1, 2, 4)})
    waited_s: list[float] = []

    def wait(seconds: float) -> None:
        waited_s.append(seconds)
        cluster.tick(round(seconds))

    monkeypatch.setattr(operator_module, "time", SimpleNamespace(sleep=wait))
    measures = report(sample_s=2.0)["measures"]
    assert waited_s == [2.0]
    assert measures["reassignment_bytes_in_per_sec.4"] == measures["reassignment_bytes_out_per_sec.1"] == 20
    assert measures["reassignment_max_lag"] == 60
    assert gauges["kafka_steward.cluster.reassignment_bytes_in_per_sec.4"][0] == 20


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"when_unhealthy": "shout"}, "when_unhealthy is 'shout'; it takes report or fail"),
        ({"limits": {"lag": 1}}, "There is no measure 'lag'"),
    ],
)
def test_what_cannot_be_asked_for_fails_for_good_before_anything_is_measured(
    make_cluster: MakeCluster, gauges: Gauges, given: dict[str, Any], sentence: str
) -> None:
    make_cluster("1a 2b 3c", "orders: 123")
    with pytest.raises(AirflowFailException, match=sentence):
        report(**given)
    assert gauges == {}
