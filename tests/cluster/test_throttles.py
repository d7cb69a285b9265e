"""What is borrowed is given back, and what others wrote stays: whatever they do in between."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.cluster.throttles import (
    LeasedRate,
    Returned,
    Side,
    absent,
    add_entries,
    entries,
    entries_to_add,
    listed,
    rate_change,
    rates,
    remove_entries,
    restore_rates,
    set_rates,
)
from kafka_steward.errors import BrokerUnreachable, ClusterError, KafkaRefused

FOLLOWER = Side.FOLLOWER


class Settings:
    """Configurations as real brokers keep them: append leaves no doubles, and a star stands alone."""

    def __init__(
        self, topics: dict[str, str | None] | None = None, brokers: dict[int, int | None] | None = None
    ) -> None:
        self.lists = topics or {}
        self.rates = brokers or {}
        self.dead: set[int] = set()

    def topic_configs(
        self, topics: Collection[str], names: Collection[str], *, own_only: bool = False
    ) -> dict[str, dict[str, str]]:
        (key,) = names
        assert not own_only
        return {topic: {key: self.lists[topic] or ""} for topic in topics if topic in self.lists}

    def broker_configs(
        self, brokers: Collection[int], names: Collection[str], *, own_only: bool = False
    ) -> dict[int, dict[str, str]]:
        (key,) = names
        assert own_only
        now = {broker: self.rates.get(broker) for broker in brokers if broker not in self.dead}
        return {broker: {} if rate is None else {key: str(rate)} for broker, rate in now.items()}

    def change_topic_configs(self, changes: Mapping[str, Sequence[ConfigChange]]) -> dict[str, KafkaRefused | None]:
        return {topic: self._change_list(topic, change) for topic, (change,) in changes.items()}

    def change_broker_configs(self, changes: Mapping[int, Sequence[ConfigChange]]) -> dict[int, ClusterError | None]:
        return {broker: self._change_rate(broker, change) for broker, (change,) in changes.items()}

    def _change_list(self, topic: str, change: ConfigChange) -> KafkaRefused | None:
        if topic not in self.lists:
            return KafkaRefused(3, "The topic does not exist.", "sentence")
        now, given = listed(self.lists[topic]), listed(change.value)
        if change.op is ConfigOp.APPEND:
            after = (*now, *(entry for entry in given if entry not in now))
        else:
            after = tuple(entry for entry in now if entry not in given)
        if "*" in after and len(after) > 1:
            return KafkaRefused(40, "must be the literal '*'", "sentence")
        self.lists[topic] = ",".join(after)
        return None

    def _change_rate(self, broker: int, change: ConfigChange) -> ClusterError | None:
        if broker in self.dead:
            return BrokerUnreachable(broker, "sentence")
        self.rates[broker] = None if change.value is None else int(change.value)
        return None


entry = st.builds("{}:{}".format, st.integers(0, 3), st.integers(1, 3))
some_entries = st.lists(entry, max_size=5, unique=True)
some_rates = st.none() | st.integers(1, 3)


@given(others=some_entries, wanted=some_entries, later=some_entries, withdrawn=some_entries)
def test_after_giving_back_the_list_is_what_others_made_of_it(
    others: list[str], wanted: list[str], later: list[str], withdrawn: list[str]
) -> None:
    settings = Settings({"t": ",".join(others)})
    ours = entries_to_add(settings, FOLLOWER, {"t": wanted})
    add_entries(settings, FOLLOWER, ours)
    assert set(wanted) <= set(listed(settings.lists["t"]))

    # Somebody else adds and withdraws entries of their own, meanwhile.
    theirs = [change for change in later if change not in ours.get("t", ())]
    settings.change_topic_configs({"t": [ConfigChange("k", ConfigOp.APPEND, ",".join(theirs))]})
    gone = [change for change in withdrawn if change not in ours.get("t", ())]
    settings.change_topic_configs({"t": [ConfigChange("k", ConfigOp.SUBTRACT, ",".join(gone))]})

    remove_entries(settings, FOLLOWER, ours)
    expected = {change for change in {*others, *theirs} if change not in gone}
    assert set(listed(settings.lists["t"])) == expected
    remove_entries(settings, FOLLOWER, ours)
    assert set(listed(settings.lists["t"])) == expected


@given(wanted=some_entries)
def test_a_star_is_left_alone_and_needs_no_entries(wanted: list[str]) -> None:
    settings = Settings({"t": "*"})
    assert entries_to_add(settings, FOLLOWER, {"t": wanted}) == {}
    assert absent("*", wanted) == ()
    remove_entries(settings, FOLLOWER, {"t": wanted})
    assert settings.lists["t"] == "*"


@given(before=some_entries, wanted=some_entries)
def test_what_was_listed_before_us_is_never_ours(before: list[str], wanted: list[str]) -> None:
    ours = entries_to_add(Settings({"t": ",".join(before)}), FOLLOWER, {"t": wanted})
    assert set(ours.get("t", ())) == set(wanted) - set(before)


def test_a_topic_that_is_gone_owes_nothing_and_lends_nothing() -> None:
    assert entries_to_add(Settings(), FOLLOWER, {"gone": ["0:1"]}) == {}
    assert remove_entries(Settings(), FOLLOWER, {"gone": ["0:1"]}) == {"gone": None}


def test_entries_name_partition_and_broker_by_topic() -> None:
    adding = {TopicPartition("t", 1): [5, 4], TopicPartition("t", 0): [4], TopicPartition("u", 0): []}
    assert entries(adding) == {"t": ("0:4", "1:4", "1:5")}


@given(before=some_rates, ours=st.integers(1, 3), meanwhile=st.none() | st.integers(1, 4))
def test_a_rate_is_put_back_only_while_it_is_ours(before: int | None, ours: int, meanwhile: int | None) -> None:
    settings = Settings(brokers={1: before})
    owed = LeasedRate(ours, rates(settings, FOLLOWER, [1])[1])
    set_rates(settings, FOLLOWER, {1: ours})
    settings.rates[1] = meanwhile
    returned = restore_rates(settings, FOLLOWER, {1: owed})[1]
    assert (settings.rates[1], returned) == (
        (before, Returned.RESTORED) if meanwhile in (ours, before) else (meanwhile, Returned.LEFT_ALONE)
    )


def test_a_rate_that_was_not_there_is_deleted_not_set_to_some_default() -> None:
    assert rate_change(5, LeasedRate(5, None), "k") == ConfigChange("k", ConfigOp.DELETE)
    assert rate_change(5, LeasedRate(5, 7), "k") == ConfigChange("k", ConfigOp.SET, "7")
    assert rate_change(None, LeasedRate(5, None), "k") == ConfigChange("k", ConfigOp.DELETE), "ours may be on its way"
    assert rate_change(6, LeasedRate(5, None), "k") is None


def test_a_dead_brokers_rate_stays_owed() -> None:
    settings = Settings(brokers={1: 5, 2: 5})
    settings.dead = {2}
    owed = {1: LeasedRate(5, None), 2: LeasedRate(5, None)}
    assert restore_rates(settings, FOLLOWER, owed) == {1: Returned.RESTORED, 2: Returned.OWED}
    assert settings.rates == {1: None, 2: 5}


def test_the_keys_are_kafkas_and_each_side_has_its_own() -> None:
    assert FOLLOWER.replicas_key == "follower.replication.throttled.replicas"
    assert Side.LEADER.rate_key == "leader.replication.throttled.rate"
