"""Whatever lies in the tree: a good request is carried out, a dead broker noticed, and every verb answers."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from kazoo.client import KazooClient

from kafka_steward.document_api.controller import DocumentController
from kafka_steward.escaping import UNPRINTABLE
from kafka_steward.execution.watch.broker_joins import poll_empty_brokers, poll_joined_brokers
from kafka_steward.execution.watch.failure_detector import FailureDetector
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.records import FAILED_BROKERS
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.settings import Settings
from tests.cli.scene import Scene, new_scene
from tests.hostile import HostileNode, Writer, kazoo_writer, sql_writer, trees
from tests.journal.conftest import PATIENT_S
from tests.journal.zookeeper import ZooKeeperServer
from tests.rings import tried

WATCH = Actor(task_id="watch")
SETTINGS = Settings.of({"throttle": 0, "heal_failure_interval": 1})
VERBS = (
    "status",
    "plans",
    "audit",
    "queue list",
    "queue list -o json",
    "queue verify",
    "requests list",
    "verify",
    "show 0",
    "status -o json",
    "audit -o csv",
    "watch",
)
#: Each of these does what it is for, or says why it does not. `FILE` is a reassignment, `PLAN` the newest plan, and
#: `NEW` a file that is not there.
CHANGING = (
    "apply FILE",
    "throttle PLAN 50M",
    "disable --reason x",
    "resume",
    "enable",
    "resume PLAN",
    "cancel PLAN --scope plan --reason x",
    "cancel --restore-order",
    "apply FILE",
    "abandon PLAN",
    "cancel --all --reason x",
    "queue add FILE",
    "queue verify FILE",
    "queue remove",
    "requests add FILE",
    "requests remove request_0000000000",
    "queue generate --topic t --brokers 1,2,3",
    "signal cancel --reason x",
    "bounce 2 --for 1h",
    "throttle 0 50M --reason x",
    "resume 0",
    "cancel 0 --reason x",
    "abandon 0 --reason x",
    "journal archive NEW --before 1h",
    "journal pair",
    "journal copy --to kafka_copy",
)
#: A broker that no hostile document announces as restarting: it could receive nothing then, as it should.
TARGET = 77
GOOD = '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2, 77]}]}'
#: PollTimes that a good request may take: hostile ones before it are carried out, or refused, in turn.
LOOKS = 60
_clusters = (f"hostile-{number}" for number in itertools.count())

Place = tuple[Journal, Writer]


def node(path: str, data: str, *, at_ms: int = 1_763_712_000_000) -> HostileNode:
    return HostileNode(path, data, (0, 1, 1, at_ms, at_ms))


def holds(journal: Journal, write: Writer, nodes: list[HostileNode], folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        scene = new_scene(patch, folder, journal)
        scene.simulator.create("u", [(1, 2), (2, 3)])
        scene.simulator.racks[TARGET], scene.simulator.broker_settings[TARGET] = "d", {}
        scene.simulator.alive.add(TARGET)
        write(nodes)
        every_verb_answers(scene, VERBS)
        a_good_request_succeeds(scene)
        a_dead_broker_is_noticed(scene)
        nothing_is_written_at_each_look(scene)
        every_verb_answers(scene, ("status", "audit"))
        every_verb_that_changes_something_answers(scene, folder)


def every_verb_answers(scene: Scene, verbs: Sequence[str]) -> None:
    for verb in verbs:
        scene.interfere, scene.pauses = stop_after(3), 0
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = scene.call(*verb.split())
        said = out.getvalue() + err.getvalue()
        assert code in {0, 1, 3, 130}, verb
        assert "Traceback" not in said, said
        assert code in {0, 130} or err.getvalue().strip(), verb
        strange = UNPRINTABLE.sub("?", said.replace("\n", "")) != said.replace("\n", "")
        assert not strange, (verb, said)
    scene.interfere = lambda _: None


def every_verb_that_changes_something_answers(scene: Scene, folder: Path) -> None:
    new = folder / "archive.jsonl"
    new.unlink(missing_ok=True)
    given = {"FILE": scene.file("t-1: 234", "u-0: 24"), "NEW": str(new)}
    with open_journal(f"sqlite:///{folder}/copy.db", scene.journal.cluster_id, compare=False) as copy:
        scene.others["kafka_copy"] = copy
        for verb in CHANGING:
            words = given | {"PLAN": next((plan.digest for plan in scene.journal.plans.latest(1)), "beef")}
            every_verb_answers(scene, [" ".join(words.get(word, word) for word in verb.split())])
    every_verb_answers(scene, ("status", "plans", "audit"))


def stop_after(pauses: int) -> Callable[[int], None]:
    def interfere(pause: int) -> None:
        if pause >= pauses:
            raise KeyboardInterrupt

    return interfere


def a_good_request_succeeds(scene: Scene) -> None:
    scene.journal.mailbox.append(paths.REQUEST_PREFIX, GOOD)
    protocol = DocumentController(scene.simulator, scene.journal, SETTINGS, WATCH)
    said: list[str] = []
    for _ in range(LOOKS):
        said += protocol.poll().sentences
        if scene.replicas()[0] == (1, 2, TARGET):
            return
        scene.simulator.tick()
    raise AssertionError(f"the good request was not executed: {said[-5:]}")


def a_dead_broker_is_noticed(scene: Scene) -> None:
    scene.simulator.kill(TARGET)
    verdict = FailureDetector(scene.simulator, scene.journal, SETTINGS, WATCH).poll()
    assert verdict.down == (TARGET,)
    assert (TARGET,) in {each.key for each in FAILED_BROKERS.list_valid(scene.journal.mailbox)}
    poll_joined_brokers(scene.simulator, scene.journal, SETTINGS, WATCH)
    poll_empty_brokers(scene.simulator, scene.journal, SETTINGS)


def nothing_is_written_at_each_look(scene: Scene) -> None:
    """What can be moved aside is gone, and what cannot is told once."""
    for _ in range(3):
        look(scene)
    before = len(scene.journal.audit.rows())
    for _ in range(3):
        look(scene)
    rows = scene.journal.audit.rows()
    assert len(rows) == before, rows[before:]


def look(scene: Scene) -> None:
    FailureDetector(scene.simulator, scene.journal, SETTINGS, WATCH).poll(announce=False)
    DocumentController(scene.simulator, scene.journal, SETTINGS, WATCH).poll()


@contextmanager
def on_database(url: str) -> Iterator[Place]:
    cluster_id = next(_clusters)
    engine = sa.create_engine(url)
    try:
        with open_journal(url, cluster_id) as journal:
            yield journal, sql_writer(engine, cluster_id)
    finally:
        engine.dispose()


@contextmanager
def on_zookeeper(server: ZooKeeperServer, url: str) -> Iterator[Place]:
    cluster_id = next(_clusters)
    client = KazooClient(server.hosts)
    client.start(timeout=PATIENT_S)
    try:
        client.ensure_path(f"/{cluster_id}")
        options = ZooKeeperOptions(server.at(cluster_id), timeout_s=PATIENT_S)
        with open_journal(url, cluster_id, zookeeper=options) as journal:
            yield journal, kazoo_writer(client, f"/{cluster_id}")
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database for all trees: each has a cluster of its own."""
    return tmp_path_factory.mktemp("hostile")


unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@settings(unhurried, max_examples=tried(12))
@given(nodes=trees())
def test_on_sqlite_whatever_lies_in_the_tree(nodes: list[HostileNode], folder: Path) -> None:
    with on_database(f"sqlite:///{folder}/journal.db") as (journal, write):
        holds(journal, write, nodes, folder)


@pytest.mark.process
@settings(unhurried, max_examples=10)
@given(nodes=trees())
@pytest.mark.slow
def test_on_postgresql_whatever_lies_in_the_tree(nodes: list[HostileNode], postgres_url: str, folder: Path) -> None:
    with on_database(postgres_url) as (journal, write):
        holds(journal, write, nodes, folder)


@pytest.mark.process
@settings(unhurried, max_examples=10)
@given(nodes=trees())
@pytest.mark.slow
def test_on_zookeeper_whatever_lies_in_the_tree(
    nodes: list[HostileNode], zookeeper: ZooKeeperServer, folder: Path
) -> None:
    with on_zookeeper(zookeeper, f"sqlite:///{folder}/journal.db") as (journal, write):
        holds(journal, write, nodes, folder)
