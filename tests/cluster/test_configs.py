"""A change of a broker's setting is over when the broker shows it: until then the broker acts as before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin import IncrementalAlterConfigsRequest

from kafka_steward.cluster import client, configs
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.config_freshness import SHOWN_WITHIN_S, RecentConfigChanges
from kafka_steward.cluster.configs import BrokerRate, ConfigChange, ConfigOp
from kafka_steward.cluster.session import Session
from kafka_steward.errors import BrokerUnreachable, KafkaRefused

KEY = "follower.replication.throttled.rate"
SET, DELETE = ConfigChange(KEY, ConfigOp.SET, "100"), ConfigChange(KEY, ConfigOp.DELETE)


class Brokers:
    """Brokers that say yes at once, and show it when they have been looked at `late` times."""

    def __init__(self, late: int, *, values: Mapping[int, str] | None = None, dead: Collection[int] = ()) -> None:
        self.late, self.dead = late, dead
        self.shown, self.coming = dict(values or {}), dict(values or {})
        self.looks = 0

    def send_to_each(self, asked: Mapping[int, Any], *, timeout_ms: int | None = None) -> dict[int, Any]:
        del timeout_ms
        requests = {broker: request() for broker, request in asked.items()}
        changing = any(isinstance(request, IncrementalAlterConfigsRequest) for request in requests.values())
        self.looks += not changing
        return {broker: self.answer(broker, request) for broker, request in requests.items()}

    def send_to_responding(self, asked: Mapping[int, Any], *, timeout_ms: int | None = None) -> dict[int, Any]:
        answers = self.send_to_each(asked, timeout_ms=timeout_ms)
        return {broker: answer for broker, answer in answers.items() if not isinstance(answer, BrokerUnreachable)}

    def answer(self, broker: int, request: Any) -> Any:
        if broker in self.dead:
            return BrokerUnreachable(broker, "gone")
        if isinstance(request, IncrementalAlterConfigsRequest):
            ((_, name, ((_, _, value),)),) = request.resources
            self.coming = {each: of for each, of in self.coming.items() if each != broker}
            self.coming |= {} if value is None else {broker: value}
            return SimpleNamespace(responses=[SimpleNamespace(resource_name=name, error_code=0, error_message=None)])
        if self.looks >= self.late:
            self.shown = self.coming
        entry = SimpleNamespace(name=KEY, value=self.shown.get(broker), config_source=2)
        result = SimpleNamespace(resource_name=str(broker), error_code=0, error_message=None, configs=[entry])
        return SimpleNamespace(results=[result])


def over(transport: Any) -> KafkaCluster:
    cluster = KafkaCluster.__new__(KafkaCluster)
    cluster._transport = transport
    cluster._config_changes = RecentConfigChanges()
    return cluster


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "SHOWN_WITHIN_S", 0.2)
    monkeypatch.setattr(client, "_POLL_S", 0.001)


@pytest.mark.parametrize(("change", "expected"), [(SET, {1: "100", 2: "7"}), (DELETE, {2: "7"})])
def test_it_is_waited_for(change: ConfigChange, expected: dict[int, str]) -> None:
    brokers = Brokers(5, values={1: "7", 2: "7"})
    assert over(brokers).change_broker_configs({1: [change]}) == {1: None}
    assert (brokers.shown, brokers.looks) == (expected, 5)


def test_one_that_never_shows_it_is_not_waited_for_for_long() -> None:
    brokers = Brokers(10**9)
    assert over(brokers).change_broker_configs({1: [SET]}) == {1: None}
    assert brokers.shown == {}


def test_one_that_is_gone_is_not_waited_for() -> None:
    brokers = Brokers(3, dead=[2])
    results = over(brokers).change_broker_configs({1: [SET], 2: [SET]})
    assert (results[1], type(results[2])) == (None, BrokerUnreachable)
    assert (brokers.shown, brokers.looks) == ({1: "100"}, 3)


def test_a_topic_is_read_again_until_its_own_setting_is_shown() -> None:
    looks = iter(["7", "7", "100"])

    def describe(request: Any) -> Any:
        entry = SimpleNamespace(name=KEY, value=next(looks), config_source=1)
        names = [name for _, name, _ in request().resources]
        results = [SimpleNamespace(resource_name=name, error_code=0, configs=[entry]) for name in names]
        return SimpleNamespace(results=results)

    done = SimpleNamespace(responses=[SimpleNamespace(resource_name="t", error_code=0, error_message=None)])
    cluster = over(SimpleNamespace(send_to_any=describe, send_to_controller=lambda *_, **__: done))
    assert cluster.change_topic_configs({"t": [SET]}) == {"t": None}
    assert cluster.topic_configs(["t"], [KEY], own_only=True) == {"t": {KEY: "100"}}
    assert next(looks, None) is None


@pytest.mark.parametrize("code", [3, 17])
def test_a_topic_that_does_not_or_cannot_exist_is_left_out_and_others_are_read(code: int) -> None:
    transport: Any = SimpleNamespace(send_to_any=lambda _: answer_of({"my topic": code, "t": 0}))
    assert over(transport).topic_configs(["my topic", "t"], ["min.insync.replicas"]) == {
        "t": {"min.insync.replicas": "2"}
    }


def test_a_topic_that_may_not_be_read_is_a_refusal() -> None:
    transport: Any = SimpleNamespace(send_to_any=lambda _: answer_of({"secret": 29, "t": 0}))
    with pytest.raises(KafkaRefused, match="secret"):
        over(transport).topic_configs(["secret", "t"], ["min.insync.replicas"])


def described(*values: tuple[int, str | None], shown: bool = True) -> Any:
    """What a broker tells of its rate, the value that it shows first: source and value."""
    synonyms = [SimpleNamespace(name=KEY, source=source, value=value) for source, value in values]
    entry = SimpleNamespace(
        name=KEY, value=values[0][1], config_source=values[0][0], synonyms=synonyms if shown else None
    )
    result = SimpleNamespace(resource_name="1", error_code=0, error_message=None, configs=[entry])
    return SimpleNamespace(results=[result])


@pytest.mark.parametrize(
    ("answer", "rate"),
    [
        (described((2, "50"), (3, "7"), (4, "3")), BrokerRate("50", "7")),
        (described((2, "50"), (4, "3")), BrokerRate("50", None)),
        (described((3, "7"), (4, "3")), BrokerRate(None, "7")),
        (described((4, "3")), BrokerRate(None, None)),
        (described((2, "50"), shown=False), BrokerRate("50", None)),
        (described((3, "7"), shown=False), BrokerRate(None, "7")),
        (SimpleNamespace(results=[SimpleNamespace(resource_name="1", error_code=0, configs=[])]), BrokerRate()),
        (described((2, " 50 "), (3, "+007")), BrokerRate("50", "7")),
        (described((2, str(2**63 - 1)), (3, "0")), BrokerRate(str(2**63 - 1), "0")),
        *((described((2, value), (3, value)), BrokerRate()) for value in (None, "", "-1", "1.5", "fast", "9" * 20)),
    ],
)
def test_a_rate_is_the_brokers_own_and_the_one_for_all_brokers_never_the_files(answer: Any, rate: BrokerRate) -> None:
    """What Kafka 3.9.2 and 4.3.1 were seen to apply."""
    assert configs.parse_broker_rate(answer, KEY, defaults_apply=True) == rate


def test_a_rate_for_all_brokers_counts_where_the_broker_has_kafka_3_9_or_later() -> None:
    """Kafka before it shows the rate and does not apply it (KAFKA-10190): a copy would not be throttled at all."""
    versions = {1: (3, 8), 2: (3, 9), 3: (4, 3)}
    connections = {broker: SimpleNamespace(broker_version=version) for broker, version in versions.items()}
    session = Session(None, SimpleNamespace(broker_version=(3, 9), _conns=connections))
    asked: list[Any] = []

    def answers(requests: Mapping[int, Any]) -> dict[int, Any]:
        asked.extend(request() for request in requests.values())
        return {broker: described((2, "50"), (3, "7")) for broker in requests}

    cluster = over(SimpleNamespace(session=lambda: session, send_to_responding=answers))
    inherited = {1: None, 2: "7", 3: "7", 4: "7"}  # the connection to 4 has ended since
    assert cluster.broker_rates([1, 2, 3, 4], KEY) == {each: BrokerRate("50", of) for each, of in inherited.items()}
    assert [request.include_synonyms for request in asked] == [True] * 4, "one request for both"


def test_a_rate_that_may_not_be_read_is_a_refusal() -> None:
    refused = SimpleNamespace(
        results=[SimpleNamespace(resource_name="1", error_code=31, error_message=None, configs=[])]
    )
    with pytest.raises(KafkaRefused, match="reading the settings of 1"):
        configs.parse_broker_rate(refused, KEY, defaults_apply=True)


def answer_of(topics: Mapping[str, int]) -> Any:
    entry = SimpleNamespace(name="min.insync.replicas", value="2", config_source=5)
    results = [
        SimpleNamespace(resource_name=name, error_code=code, error_message=None, configs=[] if code else [entry])
        for name, code in topics.items()
    ]
    return SimpleNamespace(results=results)


# A setting that a broker shows from before a change of ours is not taken for what another client has set

LISTED = "follower.replication.throttled.replicas"
LIST_SET = ConfigChange(LISTED, ConfigOp.SET, "0:1")
LIST_DELETE = ConfigChange(LISTED, ConfigOp.DELETE)


def append(entries: str) -> ConfigChange:
    return ConfigChange(LISTED, ConfigOp.APPEND, entries)


def subtract(entries: str) -> ConfigChange:
    return ConfigChange(LISTED, ConfigOp.SUBTRACT, entries)


@pytest.mark.parametrize(
    ("changes", "shown", "stale"),
    [
        ([LIST_SET], "0:1", False),
        ([LIST_SET], None, True),
        ([LIST_SET], "0:2", True),
        ([LIST_DELETE], None, False),
        ([LIST_DELETE], "0:1", True),
        ([append("0:1,1:1")], "0:1,1:1", False),
        ([append("0:1,1:1")], "5:5,1:1,0:1", False),
        ([append("0:1,1:1")], "0:1", True),
        ([append("0:1")], None, True),
        ([subtract("0:1")], "1:1", False),
        ([subtract("0:1")], "", False),
        ([subtract("0:1")], None, False),
        ([subtract("0:1")], "0:1,1:1", True),
        ([append("0:1"), subtract("1:1")], "0:1", False),
        ([append("0:1"), subtract("1:1")], "0:1,1:1", True),
        ([append("0:1"), subtract("0:1")], "", False),
        ([append("0:1"), subtract("0:1")], "0:1", True),
        ([append("0:1"), LIST_DELETE], None, False),
        ([append("0:1"), LIST_DELETE], "0:1", True),
        ([LIST_DELETE, append("0:2")], "0:2", False),
        ([LIST_DELETE, append("0:2")], None, True),
        ([LIST_SET, LIST_DELETE], "0:1", True),
    ],
)
def test_what_a_broker_shows_is_stale_unless_it_shows_every_change(
    changes: list[ConfigChange], shown: str | None, stale: bool
) -> None:
    recent = RecentConfigChanges()
    for number, change in enumerate(changes):
        recent.on_accepted("t", [change], number / 100)
    values = {"t": {} if shown is None else {LISTED: shown}, "other": {}}
    assert recent.find_stale(values, [LISTED], 1) == (["t"] if stale else [])
    assert recent.find_stale(values, ["min.insync.replicas"], 1) == [], "only what is asked for"
    assert recent.find_stale({"other": {}}, [LISTED], 1) == [], "a topic that is gone has nothing to show"


def test_what_is_not_shown_after_a_while_was_changed_by_another_client() -> None:
    recent = RecentConfigChanges()
    recent.on_accepted("t", [append("0:1")], 100)
    assert recent.find_stale({"t": {}}, [LISTED], 100 + SHOWN_WITHIN_S - 0.1) == ["t"]
    assert recent.find_stale({"t": {}}, [LISTED], 100 + SHOWN_WITHIN_S) == []
    assert recent.find_stale({"t": {}}, [LISTED], 100) == [], "what was forgotten takes no memory"
