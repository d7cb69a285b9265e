"""An evening of one cluster in a real Airflow: workflow after workflow, as people, schedules and events start them.

Each workflow has a connection of its own, whose principal has the ACLs that docs/permissions.md lists for it, and no
other; they share a journal. One step finds the cluster as the one before it left it, so that nothing is made twice. In
the first half, broker 4 is drained, dies empty, and comes back to its pending replicas and to its share of the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.demotions import demoted_brokers
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import FailedBroker
from kafka_steward.journal.records import PENDING_REPLICAS, MoveRow, MoveState
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import AirflowFailed, LocalAirflow
from tests.airflow.conftest import Desk
from tests.airflow.people import answer, asked, ended, reported
from tests.cordons import lift_cordon
from tests.documents import create_document, delete_document
from tests.eventually import eventually
from tests.lost_brokers import lose
from tests.secured import PASSWORD, Secured, rights_of, secured_cluster, set_of
from tests.simulated_plan import pending_partitions

__all__ = ["BEFORE", "HALVES", "Evening"]

DAGS = """\
# All Airflow DAGs of one cluster.
from airflow.sdk import DAG
from kafka_steward.dags import apply, cancel, fill, heal, health, rebalance, throttle
from kafka_steward.operators.topics import CreateTopicOperator

name, nobody = "{name}", 10**12
one_way, other_way = dict(deferrable={kraft}), dict(deferrable=not {kraft})
def named(workflow, dag_id=None):
    return dict(conn_id=f"{{name}}_{{workflow}}", dag_id=f"{{dag_id or workflow}}_{{name}}")
health(**named("health"))
health(**named("health", "hourly"), schedule="@continuous", max_active_runs=1)
rebalance(**named("rebalance"), **other_way)
rebalance(**named("expand"), **one_way, on_join=True, approve_above=nobody)
rebalance(**named("rebalance", "nightly"), **one_way, schedule="* * * * *", approve_above=nobody)
apply(**named("apply"), **other_way)
cancel(**named("cancel"), **other_way)
throttle(**named("throttle"))
fill(**named("fill"), **one_way)
heal(**named("heal"), **one_way)
with DAG("topic_{name}", schedule=None):
    allowed = dict(enable_under_replicated_topic_creation=True)
    CreateTopicOperator(
        task_id="create",
        conn_id=named("topic")["conn_id"],
        topic="pending",
        partitions=3,
        replication_factor=4,
        settings=allowed,
    )
"""
WORKFLOWS = (
    "health", "hourly", "rebalance", "expand", "nightly", "apply", "cancel", "throttle", "fill", "heal", "topic",
)  # fmt: skip
#: The connections, with the name of the workflow on the page; None: it needs no right in Kafka.
CONNECTIONS = {
    **{name: name for name in ("health", "rebalance", "expand", "apply", "cancel", "fill", "heal")},
    "topic": "CreateTopicOperator",
    "throttle": None,
}
#: Bytes per second into one broker, over so many seconds: 1.2 MB arrive at once, and the next 1 MB after minutes. With
#: Kafka's own windows of one second, 1 MB arrives every eleven seconds at any rate, and a slow machine comes too late.
SLOW, FASTER, _WINDOW_S = 2_000, 3_000, "60"
#: The topic `even`: five partitions, four of them on broker 4.
BEFORE: dict[int, Assignment] = {0: (4, 1, 2), 1: (1, 4, 3), 2: (2, 3, 4), 3: (4, 3, 1), 4: (3, 1, 2)}
#: The topic `skewed`: all on three brokers.
SKEWED: dict[int, Assignment] = dict.fromkeys(range(12), (1, 2, 3))
RATE = "follower.replication.throttled.rate"
_LONGEST_S = 1500
#: The steps in order, by the mode in which CI does them; in the other one, `make slow` does.
HALVES = {"kraft": ("health", "drain", "fill", "expand", "demote"), "zookeeper": ("apply", "cancel", "nightly", "heal")}


class Evening:
    """Does `steps` one after the other in `run`, which a thread of its own may call; `result` waits for one of them."""

    desk: Desk
    sandbox: Sandbox
    opened: ClusterSession

    def __init__(self, airflow: LocalAirflow, mode: str, steps: Iterable[str]) -> None:
        self._airflow, self._mode = airflow, mode
        self._results: dict[str, Future[dict[str, Any]]] = {step: Future() for step in steps}

    def result(self, step: str) -> dict[str, Any]:
        """What the step found; raises what ended it, or an earlier one."""
        return self._results[step].result(timeout=_LONGEST_S)

    def run(self) -> None:
        """Do the steps, on a cluster of its own; what fails fails every step that was to come."""
        folder = self._airflow.home / f"evening_{self._mode}"
        folder.mkdir()
        try:
            with secured_cluster(self._mode, folder, replication_quota_window_size_seconds=_WINDOW_S) as secured:
                self.sandbox = secured.sandbox
                for name, workflow in CONNECTIONS.items():
                    self._desk(secured, name, workflow).configure()
                self.desk = self._desk(secured, "health", "health")
                with self.desk.opened() as self.opened:
                    self._prepare()
                    for step, result in self._results.items():
                        result.set_result(self._step(step)())
        except Exception as error:  # noqa: BLE001 - each test that waits for a step raises it
            for result in self._results.values():
                if not result.done():
                    result.set_exception(error)

    def _desk(self, secured: Secured, name: str, workflow: str | None) -> Desk:
        """A connection by SCRAM over TLS, whose principal has the rights that docs/permissions.md lists, and no other.

        On a ZooKeeper cluster the documents are in ZooKeeper, and nobody else's to change.
        """
        journal = f"sqlite:///{self._airflow.home}/kafka_steward/evening_{self._mode}.db"
        principal = secured.principal(*([] if workflow is None else rights_of(set_of(workflow))))
        config = secured.config(principal)
        extra = {key: config[key] for key in ("security_protocol", "sasl_mechanism", "ssl_cafile")}
        if self._mode == "zookeeper":
            extra |= {"zookeeper": secured.sandbox.zookeeper, "zookeeper_user": "steward"}
            extra |= {"zookeeper_password": PASSWORD}
        bootstrap = ",".join(secured.addresses)
        return Desk(self._airflow, f"{self._name}_{name}", bootstrap, journal, principal, PASSWORD, extra)

    @property
    def _name(self) -> str:
        return f"evening_{self._mode}"

    def _step(self, name: str) -> Callable[[], dict[str, Any]]:
        found: Callable[[], dict[str, Any]] = getattr(self, f"_{name}")
        return found

    def _prepare(self) -> None:
        self.sandbox.create_topics("even", assignments=BEFORE)
        self.sandbox.fill("even", 20_000_000)
        self.desk.add_dags(self._name, self._dags(), *map(self._dag, WORKFLOWS), by_spark=[self._dag("rebalance")])

    def _health(self) -> dict[str, Any]:
        """By a person, and on a schedule."""
        run_id = self._trigger("health", {})
        ended(self.desk, self._dag("health"), run_id)
        self._pause("hourly", paused=False)
        scheduled = self.desk.ended(self._dag("hourly"), 0)
        self._pause("hourly", paused=True)
        return {"by hand": self.desk.xcom(self._dag("health"), run_id, "health"), "scheduled": scheduled}

    def _drain(self) -> dict[str, Any]:
        """By a person, who approves the plan."""
        run_id = self._trigger("rebalance", {"operation": "drain", "brokers": [4]})
        request = asked(self.desk, self._dag("rebalance"), run_id)
        answer(self.desk, self._dag("rebalance"), run_id, "Approve", "rack move")
        facts = reported(self.desk, self._dag("rebalance"), run_id)
        digest = self.desk.xcom(self._dag("rebalance"), run_id, "plan")["digest"]
        (row,) = self.opened.journal.audit.rows(plan=digest, action="approve")
        said = {"asked": request["body"], "digest": digest, "approved": (row.entry.who.person, row.entry.reason)}
        # It is to be used again: what its drain has cordoned, a person opens.
        return {**facts, **said, "holds": self._held_by(4), "cordoned": lift_cordon(self.sandbox, 4)}

    def _fill(self) -> dict[str, Any]:
        """By the broker that joins: three replicas of a topic that was made without it are pending.

        It is empty, so that only the journal knows of such a broker.
        """
        lose(self.sandbox, 4)
        eventually(lambda: self._assert_live(1, 2, 3), within=60)
        create_document(
            self.opened.journal.mailbox, paths.failed_broker(4), FailedBroker(self.opened.journal.now_ms()).to_json()
        )
        ended(self.desk, self._dag("topic"), self._trigger("topic", {}))
        delete_document(self.opened.journal.mailbox, paths.failed_broker(4))
        pending = pending_partitions(self.opened.journal, "pending")
        self._pause("fill", paused=False)
        self._pause("expand", paused=False)
        self.sandbox.restart(4)
        run = self.desk.ended(self._dag("fill"), 0)
        ended(self.desk, self._dag("fill"), run["dag_run_id"])
        facts = reported(self.desk, self._dag("fill"), run["dag_run_id"])
        self._pause("fill", paused=True)
        left = self.opened.journal.rows(PENDING_REPLICAS).all()
        return {
            **facts,
            "started": run["run_type"],
            "were pending": pending,
            "are pending": left,
            "replicas": self._at("pending"),
        }

    def _expand(self) -> dict[str, Any]:
        """By the same broker, after the fill."""
        expand = self._dag("expand")

        def done() -> Any:
            states = {run["dag_run_id"]: self.desk.tasks(expand, run["dag_run_id"]) for run in self.desk.runs(expand)}
            return next(run for run, tasks in states.items() if tasks.get("report") == "success")

        run_id = eventually(done, within=400, every=4, errors=(StopIteration, AirflowFailed))
        ended(self.desk, expand, run_id)
        self._pause("expand", paused=True)
        run = next(run for run in self.desk.runs(expand) if run["dag_run_id"] == run_id)
        return {**reported(self.desk, expand, run_id), "started": run["run_type"], "holds": self._held_by(4)}

    def _demote(self) -> dict[str, Any]:
        """By a person, who takes the leaders off a broker, and lets it lead again."""
        before, held = self._orders(), self._held_by(1)
        found: dict[str, Any] = {"held": held}
        for operation in ("demote", "promote"):
            run_id = self._trigger("rebalance", {"operation": operation, "brokers": [1]})
            found[f"{operation} asked"] = asked(self.desk, self._dag("rebalance"), run_id)["subject"]
            answer(self.desk, self._dag("rebalance"), run_id, "Approve")
            found[operation] = reported(self.desk, self._dag("rebalance"), run_id)
            found[f"{operation} copied"] = self.desk.xcom(self._dag("rebalance"), run_id, "plan")["replicas_moved"]
            led = Counter(each.leader for each in self.opened.cluster.snapshot().partitions.values())
            found[f"{operation} led"], found[f"{operation} listed"] = led[1], demoted_brokers(self.opened.journal)
        return {**found, "held after": self._held_by(1), "restored": self._orders() == before}

    def _orders(self) -> dict[TopicPartition, Assignment]:
        return {name: each.replicas for name, each in self.opened.cluster.snapshot().partitions.items()}

    def _apply(self) -> dict[str, Any]:
        """By a person, who approves what it costs."""
        before = self._at("even")[0]
        given = {"topic": "even", "partition": 0, "replicas": before[:2]}
        run_id = self._trigger("apply", {"reassignment": {"version": 1, "partitions": [given]}})
        body = asked(self.desk, self._dag("apply"), run_id)["body"]
        answer(self.desk, self._dag("apply"), run_id, "Approve")
        facts = reported(self.desk, self._dag("apply"), run_id)
        return {**facts, "asked": body, "given": tuple(before[:2]), "replicas": self._at("even")[0]}

    def _cancel(self) -> dict[str, Any]:
        """By a person, in the middle of what another one began, which a throttle holds up and a form makes faster."""
        before = self._at("even")
        given = [self._given(number, replicas) for number, replicas in before.items() if number]
        document = {"version": 1, "partitions": given}
        run_id = self._trigger("apply", {"reassignment": document, "throttle": SLOW})
        asked(self.desk, self._dag("apply"), run_id)
        answer(self.desk, self._dag("apply"), run_id, "Approve")
        in_flight = eventually(self._read_in_flight, within=120, every=1)
        rates = [self._rates()]
        throttle_id = self._trigger("throttle", {"rate": FASTER, "reason": "too slow"})
        ended(self.desk, self._dag("throttle"), throttle_id)
        changed = self.desk.xcom(self._dag("throttle"), throttle_id, "throttle")
        rates.append(eventually(lambda: self._assert_rates(FASTER), within=30))
        cancel_id = self.desk.trigger(self._dag("cancel"), {"reason": "too slow"}, "ann")
        ended(self.desk, self._dag("cancel"), cancel_id)
        ended(self.desk, self._dag("apply"), run_id)
        cancelled = self.desk.xcom(self._dag("cancel"), cancel_id, "cancel")
        status = self.desk.xcom(self._dag("apply"), run_id, "submit")["status"]
        # What arrived before the cancel stays, as its scope says.
        arrived = [row.topic_partition for row in self._rows_of(cancelled["plan"]) if row.state is MoveState.COMPLETED]
        back = {name.partition: self._at("even")[name.partition] for name in in_flight if name not in arrived}
        facts = {"before": {number: before[number] for number in back}, "after": back, "apply": status}
        return {**cancelled, **facts, "rates": rates, "changed": changed["throttle"]}

    def _nightly(self) -> dict[str, Any]:
        """On a schedule, asking nobody."""
        self.sandbox.create_topics("skewed", assignments=SKEWED)
        self.sandbox.fill("skewed", 1_000_000)
        nightly = self._dag("nightly")
        self._pause("nightly", paused=False)
        run = self.desk.ended(nightly, 0, within=600)
        self._pause("nightly", paused=True)
        facts = reported(self.desk, nightly, run["dag_run_id"])
        approved = self.desk.xcom(nightly, run["dag_run_id"], "approve")
        on_4 = sum(4 in replicas for replicas in self._at("skewed").values())
        return {**facts, "started": run["run_type"], "asked": approved["asked"], "on broker 4": on_4}

    def _heal(self) -> dict[str, Any]:
        """By the death of a broker."""
        if "fill" in self._results:
            # With three brokers left, nobody could heal four replicas.
            self.sandbox.delete_topics("pending")
        heal = self._dag("heal")
        self._pause("heal", paused=False)
        self.sandbox.kill(4)
        run = self.desk.ended(heal, 0)
        ended(self.desk, heal, run["dag_run_id"])
        self._pause("heal", paused=True)
        rows = self.opened.journal.audit.rows(plan=self.desk.xcom(heal, run["dag_run_id"], "plan")["digest"])
        trail = {"actions": {row.entry.action for row in rows}, "runs": {row.entry.who.run_id for row in rows}}
        partitions = self.opened.cluster.snapshot().partitions.values()
        hurt = [each for each in partitions if each.under_replicated or each.reassigning]
        facts = reported(self.desk, heal, run["dag_run_id"])
        return {**facts, **trail, "run": run["dag_run_id"], "started": run["run_type"], "hurt": hurt}

    def _dags(self) -> str:
        # Half of the operators wait in the triggerer, half in the worker: in the other mode, it is the other half.
        return DAGS.format(name=self._name, kraft=self._mode == "kraft")

    def _dag(self, workflow: str) -> str:
        return f"{workflow}_{self._name}"

    def _trigger(self, workflow: str, conf: dict[str, Any]) -> str:
        self._pause(workflow, paused=False)
        return self.desk.trigger(self._dag(workflow), conf, "admin")

    def _pause(self, workflow: str, *, paused: bool) -> None:
        self.desk.pause(self._dag(workflow), paused=paused)

    def _at(self, topic: str) -> dict[int, Assignment]:
        found = self.opened.cluster.snapshot([topic]).partitions
        return {name.partition: each.replicas for name, each in sorted(found.items())}

    def _held_by(self, broker: int) -> int:
        return sum(broker in each.replicas for each in self.opened.cluster.snapshot().partitions.values())

    def _given(self, number: int, replicas: Assignment) -> dict[str, Any]:
        """Its last replica on the broker that has none."""
        (other,) = {1, 2, 3, 4} - set(replicas)
        return {"topic": "even", "partition": number, "replicas": [*replicas[:2], other]}

    def _read_in_flight(self) -> set[TopicPartition]:
        in_flight = set(self.opened.cluster.reassignments())
        assert in_flight, self.opened.journal.plans.unfinished()
        return in_flight

    def _rows_of(self, digest: str) -> list[MoveRow]:
        return self.opened.journal.plans.rows(digest)

    def _rates(self) -> set[str | None]:
        """The throttles that the brokers have which receive something."""
        # No principal of a workflow that runs is asked: this is the administrator.
        with KafkaCluster({"bootstrap_servers": self.sandbox.bootstrap}) as cluster:
            adding = {broker for each in cluster.reassignments().values() for broker in each.adding}
            return {found.get(RATE) for found in cluster.broker_configs(adding, [RATE], own_only=True).values()}

    def _assert_rates(self, rate: int) -> set[str | None]:
        found = self._rates()
        assert found == {str(rate)}
        return found

    def _assert_live(self, *brokers: int) -> None:
        assert set(self.opened.cluster.live_brokers()) == set(brokers)
