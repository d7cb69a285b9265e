"""Which topics take part in a plan: those of the service and Kafka's own do not, and a full name means its topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_steward.errors import PlanError, SettingError
from kafka_steward.planning.checker.check import check
from kafka_steward.service_topics import SERVICE_TOPICS, matches_any, parse_service_topics
from kafka_steward.settings import Settings
from tests.builders import cluster, planned

CANARY, OFFSETS = "__amazon_msk_canary", "__consumer_offsets"
#: Broker 4 holds nothing but a replica of the canary.
WORLD = cluster("1 2 3 4", f"{CANARY}: 12 23 31 41", f"{OFFSETS}: 12 12 12", "a-b: 12 12 12", "a.b: 12 12 12")
FACTOR = {"replication_factor": 1, "topics": ["a.b"]}
NONE = "No topic has a full name that matches {}; correct topics.".format


@pytest.mark.parametrize(
    ("operation", "options", "moved"),
    [
        ("rebalance", {}, {"a-b", "a.b"}),
        ("rebalance", {"internal_topics": True}, {"a-b", "a.b", CANARY, OFFSETS}),
        ("rebalance", {"service_topics": []}, {"a-b", "a.b", CANARY}),
        ("expand", {"service_topics": ["a-.*", CANARY]}, {"a.b"}),
        # A full name means this topic alone, internal or not.
        ("expand", {"include": ["a.b"]}, {"a.b"}),
        ("expand", {"include": ["a.b", "a-.*"]}, {"a-b", "a.b"}),
        ("rebalance", {"include": [OFFSETS, CANARY]}, {CANARY, OFFSETS}),
        ("rebalance", {"include": [OFFSETS, "a.*"], "exclude": ["a-b"]}, {OFFSETS, "a.b"}),
        ("drain", {"include": [CANARY]}, {CANARY}),
        ("drain", {}, {"a-b", "a.b", CANARY, OFFSETS}),
        ("heal", {}, {"a-b", "a.b", CANARY, OFFSETS}),
        ("heal", {"include": ["a.b"]}, {"a.b"}),
        ("heal", {"include": ["__.*"]}, {CANARY, OFFSETS}),
    ],
)
def test_the_topics_that_take_part(operation: str, options: Mapping[str, Any], moved: set[str]) -> None:
    state = {"heal": "1!", "drain": "1-"}.get(operation, "1")
    topics = (f"{CANARY}: 12 23 31 41", f"{OFFSETS}: 12 12 12", "a-b: 12 12 12", "a.b: 12 12 12")
    snapshot = cluster(f"{state} 2 3 4", *topics)
    plan = planned(snapshot, operation, options)
    assert {move.topic for move in plan.moves} == moved
    found = check(snapshot, plan)
    assert (found.problems, found.unproven) == ([], ())
    # The checker knows by itself which topics a plan may not touch.
    wider = planned(snapshot, operation, {**options, "include": [], "internal_topics": True} if state == "1" else {})
    stolen = type(plan)(plan.digest, {**wider.proof, "options": plan.proof["options"]}, wider.rows)
    may_not = {move.topic for move in wider.moves} - moved
    assert {
        topic for topic in may_not if any(f"{topic}-" in each for each in check(snapshot, stolen).problems)
    } == may_not


@pytest.mark.parametrize("operation", ["rebalance", "expand", "drain", "heal", "fill"])
def test_topics_of_which_none_takes_part_are_no_success(operation: str) -> None:
    balances = operation in ("rebalance", "expand")
    own = f"{OFFSETS} is one of Kafka's own topics; switch internal_topics on."
    both = f"{CANARY} and 1 more are among the service topics; switch internal_topics on."
    for options, sentence in (
        ({"include": ["typo", "no.*"]}, NONE("typo, no.*")),
        (
            {"include": ["a.*"], "exclude": [".*b"]},
            "Each topic that matches a.* is left out by exclude; correct one of them.",
        ),
        *([({"include": ["__cons.*"]}, own), ({"include": ["__.*"]}, both)] if balances else []),
    ):
        with pytest.raises(PlanError) as refused:
            planned(WORLD, operation, options)
        assert str(refused.value) == sentence


def test_the_setting_takes_text_and_a_list() -> None:
    known = ("__strimzi_canary", "__CruiseControlMetrics", "__KafkaCruiseControlModelTrainingSamples", CANARY)
    assert all(matches_any(topic, SERVICE_TOPICS) for topic in (*known, "__remote_log_metadata"))
    assert not any(matches_any(topic, SERVICE_TOPICS) for topic in ("canary", "orders", "my__strimzi_canary"))
    assert parse_service_topics(Settings().service_topics) == SERVICE_TOPICS
    for given in ("x.{1,2}; y", ["x.{1,2}", "y"]):
        assert Settings.of({"service_topics": given}).service_topics == "x.{1,2}; y"
        assert Settings.of({"service_topics": given}).planner_options()["service_topics"] == [
            "x.{1,2}",
            "y",
        ]
    assert parse_service_topics(" ") == ()
    for wrong in ("(", [1], 3):
        with pytest.raises(SettingError, match=r"^The setting service_topics "):
            Settings.of({"service_topics": wrong})
