"""On real clusters, each point at which a step can die, fail or lose a reply, once: the next process ends the plan.

tests/execution/test_every_crash.py tries every fault at every call, simulated. Here the calls of a real run are counted
in the same way, and one fault is put at each, by turns; what the cluster is then is Kafka's word.
"""

from __future__ import annotations

import copy
import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import Assignment, Move
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.errors import ClusterError, JournalError
from kafka_steward.execution.plans.drive import StepRunner
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.journal.audit import Action, Actor, Audit
from kafka_steward.journal.records import THROTTLE_LEASES, PlanStatus
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.planning.files.formats import PlanFolder
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.crash import Died, Faults, points
from tests.eventually import eventually
from tests.gate import Gate
from tests.journal.dead import dead_process
from tests.journal.zookeeper import forget_journal
from tests.manual_plan import plan_by_hand
from tests.pace import Deadline
from tests.present import present

WHO = Actor(person="ada")
RULES = Settings(min_free=0, throttle=2_000_000, max_in_per_broker=1, step_interval=0.1)
BEFORE = {0: (1, 2, 3), 1: (2, 3, 1)}
AFTER = {0: (4, 2, 3), 1: (2, 4, 1)}
#: What is written into each partition: enough to fly for a moment.
BYTES = 300_000
#: Between two steps: how many of them only wait depends on how fast Kafka is, and each has its own points.
_PAUSE_S = 0.3


@pytest.fixture(autouse=True)
def every_process_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds the step lock is known to be dead, so that the next need not wait for a minute."""
    with dead_process() as dead:
        pass
    monkeypatch.setattr("kafka_steward.journal.locks.DEAD_MS", 300)
    monkeypatch.setattr("kafka_steward.journal.store.new_holder_name", lambda: dead[:-8] + uuid.uuid4().hex[:8])


class Site:
    """A cluster, its journal, and processes that come and go."""

    def __init__(self, sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str, folder: Path) -> None:
        self.cluster, self.journal, self.topic, self.folder = cluster, journal, topic, folder
        self.numbers = itertools.count()
        sandbox.create_topics(topic, assignments=BEFORE)
        sandbox.fill(topic, BYTES * len(BEFORE))

    def plan(self) -> PlanFolder:
        number = next(self.numbers)
        moves = [Move(self.topic, each, BEFORE[each], AFTER[each], 0, each, "given") for each in BEFORE]
        return plan_by_hand(self.cluster, self.journal, self.folder / str(number), moves, number=number)

    def process(self, faults: Faults | Gate) -> tuple[Any, Journal]:
        """A process's own hands on the cluster and the journal."""
        mailbox = faults.around("mailbox", self.journal.mailbox)
        plans = copy.copy(self.journal.plans)
        plans._mailbox, plans._table = mailbox, faults.around("moves", plans._table)
        plans._chunks = type(plans._chunks)(mailbox)
        journal = Journal(
            cluster_id=self.journal.cluster_id,
            mailbox=mailbox,
            state=faults.around("state", self.journal.state),
            audit=Audit(faults.around("audit", self.journal.audit._table)),
            plans=plans,
            transaction=self.journal.transaction,
            project=self.journal.project,
            close_connections=lambda: None,
        )
        return faults.around("cluster", self.cluster), journal

    def carry_out(self, plan: PlanFolder, faults: Faults) -> None:
        cluster, journal = self.process(faults)
        again(lambda: publish_plan(ClusterContext(cluster, journal, RULES, WHO), plan))
        to_the_end(PlanRunner(ClusterContext(cluster, journal, RULES, WHO), plan.digest))

    def take_back(self, plan: PlanFolder, faults: Faults) -> None:
        to_the_end(CancelRunner(*self.process(faults), plan.digest, RULES, WHO, scope="plan", reason="enough"))

    def survive(self, act: Callable[[PlanFolder, Faults], None], plan: PlanFolder, faults: Faults) -> None:
        """One process meets the fault; if it dies of it, another goes on."""
        try:
            act(plan, faults)
        except Died:
            act(plan, Faults())

    def verify(self, wanted: Mapping[int, Assignment], plan: PlanFolder, status: PlanStatus) -> None:
        self.verify_replicas(wanted)
        assert present(self.journal.plans.get(plan.digest)).status is status
        assert self.journal.slot.holders() == ()
        assert self.journal.rows(THROTTLE_LEASES).all() == []
        # With ZooKeeper, a broker hears of a change of its settings a moment after it was made.
        eventually(self.is_unthrottled, within=10)

    def verify_replicas(self, wanted: Mapping[int, Assignment]) -> None:
        found = self.cluster.snapshot([self.topic]).partitions
        assert {name.partition: each.replicas for name, each in found.items()} == wanted
        assert not any(each.reassigning for each in found.values())

    def is_unthrottled(self) -> None:
        assert not self.cluster.topic_configs([self.topic], [ThrottleSide.FOLLOWER.replicas_key], own_only=True)[
            self.topic
        ]
        assert not any(
            self.cluster.broker_configs([1, 2, 3, 4], [ThrottleSide.FOLLOWER.rate_key], own_only=True).values()
        )


@pytest.fixture
def site(sandbox: Sandbox, topic: str, tmp_path: Path) -> Iterator[Site]:
    zookeeper = None if sandbox.zookeeper is None else ZooKeeperOptions(sandbox.zookeeper)
    url = f"sqlite:///{tmp_path}/journal.db"
    with (
        KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster,
        open_journal(url, cluster.cluster_id, zookeeper=zookeeper) as journal,
    ):
        yield Site(sandbox, cluster, journal, topic, tmp_path)
    if sandbox.zookeeper is not None:
        forget_journal(sandbox.zookeeper)


def again(act: Callable[[], Any], *, within_s: float = 60) -> Any:
    """Do it until it does not fail, as every caller does."""
    return eventually(act, within=within_s, every=0.1, errors=(ClusterError, JournalError))


def to_the_end(stepper: StepRunner, *, within_s: float = 60) -> None:
    deadline = Deadline(within_s)
    while True:
        progress = again(stepper.step)
        if progress.ended:
            return
        assert not deadline.passed(), progress
        time.sleep(_PAUSE_S)


def by_turns(calls: list[str], *, every: int) -> list[tuple[int, str, str]]:
    """One fault for each call, or for each one of `every`: each kind that the call can have, by turns."""
    turn = itertools.count()
    several = itertools.groupby(points(calls), key=lambda point: point[0])
    each = [kinds[next(turn) % len(kinds)] for kinds in (list(group) for _, group in several)]
    return each[::every]


def undisturbed(site: Site) -> list[list[str]]:
    """The calls of a plan and of its way back. The first time a cluster is slow: of two runs, the shorter counts."""
    runs = []
    for _ in range(2):
        counted, plan = (Faults(), Faults()), site.plan()
        site.carry_out(plan, counted[0])
        site.verify(AFTER, plan, PlanStatus.COMPLETED)
        site.take_back(plan, counted[1])
        site.verify(BEFORE, plan, PlanStatus.ROLLED_BACK)
        runs.append([each.calls for each in counted])
    return [min(calls, key=len) for calls in zip(*runs, strict=True)]


#: A quarter of an hour for all; a ninth in CI.
@pytest.mark.apart
@pytest.mark.parametrize(
    "every",
    [
        pytest.param(9, id="some", marks=[pytest.mark.ci, pytest.mark.in_ci("kraft")]),
        pytest.param(1, id="all", marks=pytest.mark.slow),
    ],
)
def test_wherever_a_process_dies_the_next_ends_the_plan_and_takes_it_back(
    site: Site, sandbox: Sandbox, every: int
) -> None:
    forth, back = (by_turns(calls, every=every) for calls in undisturbed(site))
    met = 0
    for way, undone in itertools.zip_longest(forth, back, fillvalue=(None, "", "")):
        plan, faults = site.plan(), (Faults(way[0], way[1]), Faults(undone[0], undone[1]))
        try:
            site.survive(site.carry_out, plan, faults[0])
            site.verify(AFTER, plan, PlanStatus.COMPLETED)
            site.survive(site.take_back, plan, faults[1])
            site.verify(BEFORE, plan, PlanStatus.ROLLED_BACK)
        except AssertionError as error:
            raise AssertionError(f"{way}, then {undone}: {error}") from error
        sandbox.forget_config_changes()
        met += sum(each.at is not None and len(each.calls) > each.at for each in faults)
    # Kafka is not always equally fast: a run with fewer steps does not come to the last calls of one with more.
    assert met > 0.8 * (len(forth) + len(back))
    print(f"{met} crash points of {len(forth)} + {len(back)} calls were met")


class Late(Gate):
    """Before its first submission the process stands still, and Kafka completes the submission before it goes on."""

    def __init__(self, site: Site, meanwhile: Callable[[], None]) -> None:
        super().__init__(meanwhile=meanwhile)
        self._site = site

    def call(self, name: str, act: Callable[[], Any]) -> Any:
        if name != "cluster.alter" or name in self.calls:
            return super().call(name, act)
        self.meanwhile()
        answer = super().call(name, act)
        eventually(lambda: self._site.verify_replicas({**BEFORE, 0: AFTER[0]}))
        return answer


@pytest.mark.ci
def test_a_submission_after_the_rollback_that_kafka_completes_at_once_is_taken_back(site: Site) -> None:
    plan = site.plan()
    publish_plan(ClusterContext(*site.process(Faults()), RULES, WHO), plan)
    late = Late(site, lambda: site.take_back(plan, Faults()))
    PlanRunner(ClusterContext(*site.process(late), RULES, WHO), plan.digest).step()
    eventually(lambda: site.verify_replicas(BEFORE))
    site.verify(BEFORE, plan, PlanStatus.ROLLED_BACK)
    rows = site.journal.audit.rows(plan=plan.digest, action=Action.ROLL_BACK)
    assert [(row.entry.before, row.entry.after) for row in rows] == [([*AFTER[0]], [*BEFORE[0]])]
