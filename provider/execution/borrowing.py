"""Throttles, borrowed from Kafka's configuration while replicas move, and given back. Nothing is kept in memory.

What is borrowed is written down before Kafka is changed: a list entry by the plan that added it, a rate with what was
there before. What is owed at any moment is what is written down less what is still needed; so whoever steps next, or
nobody but the watch, can give it back. A rate is shared by the plans that are written down at it; it is put back by the
last of them, and only where it is still the one that we set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.cluster.throttles import OwedRate, Side, absent, listed, rate_change
from kafka_steward.errors import BrokerUnreachable, ClusterError, KafkaRefused
from kafka_steward.execution.decisions.need import Need
from kafka_steward.execution.deeds import Deeds
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Entry, Who
from kafka_steward.journal.codec import is_topic
from kafka_steward.journal.open import Journal
from kafka_steward.journal.records import Borrowed
from kafka_steward.journal.tree import Node

__all__ = ["Borrowing"]

_UNKNOWN_TOPIC = 3


class Borrowing:
    """What one plan borrows. Every method may raise ClusterError: then what is written down is still owed.

    `attempts` numbers the submissions of each partition, which tells apart their rows in the audit trail.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        journal: Journal,
        deeds: Deeds,
        plan: str,
        *,
        attempts: Mapping[TopicPartition, int],
        who: Who,
    ) -> None:
        self._cluster = cluster
        self._journal = journal
        self._deeds = deeds
        self._plan = plan
        self._attempts = attempts
        self._who = who

    def borrow(self, need: Need, rate: int) -> None:
        """Throttle what `need` names to `rate` bytes per second into each broker. What has it already is left.

        The rates come last: a broker of a ZooKeeper cluster that has heard of its rate has heard of the lists.
        """
        for side in Side:
            brokers = sorted(broker for broker, of in need.brokers if of is side)
            self._borrow_entries(side, {topic: several for (topic, of), several in need.entries.items() if of is side})
            self._borrow_rates(side, brokers, str(rate))

    def give_back(self, need: Need, live: frozenset[int]) -> list[int]:
        """Give back all that this plan borrowed and `need` does not name; returns the brokers that still owe a rate.

        A broker's setting can be changed only while it lives: of a dead one it stays written down, for later.
        """
        owed = []
        for side in Side:
            self._return_entries(side, need)
            owed += self._return_rates(side, need, live)
        return sorted(owed)

    def _borrow_rates(self, side: Side, brokers: Collection[int], rate: str) -> None:
        if not brokers:
            return
        now = self._cluster.broker_configs(brokers, [side.rate_key], own_only=True)
        silent = [broker for broker in brokers if broker not in now]
        if silent and side is Side.FOLLOWER:
            raise BrokerUnreachable(silent[0], f"Broker {silent[0]} does not answer, so its throttle cannot be set.")
        changes, before = {}, {}
        for broker in sorted(now):
            had = now[broker].get(side.rate_key)
            noted = self._note(paths.borrowed("broker", str(broker), side.rate_key), had, rate, ())
            if had != noted.ours and had == noted.before:
                changes[broker], before[broker] = ConfigChange(side.rate_key, ConfigOp.SET, noted.ours), had
        entries = self._rate_entries(Action.THROTTLE, changes, before)
        self._insist(self._deeds.do(entries, lambda batch: self._change_rates(changes, batch)).values())

    def _borrow_entries(self, side: Side, wanted: Mapping[str, frozenset[str]]) -> None:
        now = self._cluster.topic_configs(list(wanted), [side.replicas_key], own_only=True)
        ours, entries = {}, {}
        for topic in sorted(wanted.keys() & now.keys()):
            had = now[topic].get(side.replicas_key)
            add = absent(had, sorted(wanted[topic]))
            if add:
                self._note(paths.borrowed("topic", topic, side.replicas_key), had, None, add)
                ours[topic] = ConfigChange(side.replicas_key, ConfigOp.APPEND, ",".join(add))
                entries[topic] = self._list_entries(Action.THROTTLE, topic, add)
        self._insist(self._deeds.do(entries, lambda batch: self._change_lists(ours, batch)).values())

    def _return_entries(self, side: Side, need: Need) -> None:
        mine = {topic: (node, borrowed) for topic, node, borrowed in self._borrowed("topic", side.replicas_key)}
        kept = {topic: need.entries.get((topic, side), frozenset()) for topic in mine}
        owed = {topic: set(mine[topic][1].entries[self._plan]) - kept[topic] for topic in mine}
        owed = {topic: several for topic, several in owed.items() if several}
        now = self._cluster.topic_configs(list(owed), [side.replicas_key], own_only=True) if owed else {}
        changes, entries = {}, {}
        for topic, several in owed.items():
            had = listed(now.get(topic, {}).get(side.replicas_key))
            # What is not there any more, with its topic or by someone's hand, is not ours to take away.
            there = sorted(several & set(had))
            if there:
                changes[topic] = _without(side.replicas_key, had, there, mine[topic][1])
                entries[topic] = self._list_entries(Action.UNTHROTTLE, topic, there)
        self._insist(self._deeds.do(entries, lambda batch: self._change_lists(changes, batch)).values())
        for topic, several in owed.items():
            self._forget(*mine[topic], several)

    def _return_rates(self, side: Side, need: Need, live: frozenset[int]) -> list[int]:
        mine = {
            broker: (node, borrowed)
            for name, node, borrowed in self._borrowed("broker", side.rate_key)
            if (broker := paths.broker_of(name)) is not None and (broker, side) not in need.brokers
        }
        reached = self._cluster.broker_configs(sorted(mine.keys() & live), [side.rate_key], own_only=True)
        changes, before = {}, {}
        for broker, values in reached.items():
            borrowed, now = mine[broker][1], values.get(side.rate_key)
            change = rate_change(_number(now), _owed_rate(borrowed), side.rate_key)
            if change is not None and borrowed.entries.keys() == {self._plan}:
                changes[broker], before[broker] = change, now
        entries = self._rate_entries(Action.UNTHROTTLE, changes, before)
        answers = self._deeds.do(entries, lambda batch: self._change_rates(changes, batch))
        for broker in reached:
            if answers.get(broker) is None:
                self._forget(*mine[broker])
        return [broker for broker in mine if broker not in reached or answers.get(broker) is not None]

    def _change_rates(
        self, changes: Mapping[int, ConfigChange], batch: Collection[int]
    ) -> dict[int, ClusterError | None]:
        return self._cluster.change_broker_configs({broker: [changes[broker]] for broker in batch})

    def _change_lists(
        self, changes: Mapping[str, ConfigChange], batch: Collection[str]
    ) -> dict[str, KafkaRefused | None]:
        return self._cluster.change_topic_configs({topic: [changes[topic]] for topic in batch})

    def _insist(self, answers: Collection[ClusterError | None]) -> None:
        """Raise the first refusal; a topic that is gone borrows and owes nothing."""
        for error in answers:
            if error is not None and not (isinstance(error, KafkaRefused) and error.code == _UNKNOWN_TOPIC):
                raise error

    def _borrowed(self, kind: str, config: str) -> list[tuple[str, Node, Borrowed]]:
        """What this plan has written down of one setting, by broker or topic."""
        found = []
        for name in filter(is_topic, self._journal.tree.children(paths.borrowed_below(kind))):
            node = self._journal.tree.get(paths.borrowed(kind, name, config))
            borrowed = None if node is None else Borrowed.from_node(node)
            if node is not None and borrowed is not None and self._plan in borrowed.entries:
                found.append((name, node, borrowed))
        return found

    def _note(self, path: str, had: str | None, ours: str | None, add: Collection[str]) -> Borrowed:
        """Write down that this plan borrows; what others, or an earlier step, wrote down stays."""
        node = self._journal.tree.get(path)
        if node is None:
            borrowed = Borrowed(had, ours, {self._plan: tuple(add)})
            self._journal.tree.create(path, borrowed.to_json())
            return borrowed
        known = Borrowed.from_node(node)
        mine = tuple(sorted({*known.entries.get(self._plan, ()), *add}))
        borrowed = replace(known, entries={**known.entries, self._plan: mine})
        if borrowed != known:
            self._journal.tree.set(path, borrowed.to_json(), version=node.version)
        return borrowed

    def _forget(self, node: Node, borrowed: Borrowed, owed: Collection[str] = ()) -> None:
        """Strike out what was given back; the last stroke takes the document."""
        mine = tuple(entry for entry in borrowed.entries[self._plan] if entry not in owed)
        others = {plan: several for plan, several in borrowed.entries.items() if plan != self._plan}
        left = {**others, self._plan: mine} if mine else others
        if left:
            changed = replace(borrowed, entries=left)
            self._journal.tree.set(node.path, changed.to_json(), version=node.version)
        else:
            self._journal.tree.delete(node.path, version=node.version)

    def _rate_entries(
        self, action: Action, changes: Mapping[int, ConfigChange], before: Mapping[int, str | None]
    ) -> dict[int, list[Entry]]:
        """One row for each broker; a rate that is borrowed again gets a row of its own."""
        earlier = [row.entry for row in self._journal.audit.rows(plan=self._plan, action=action)] if changes else []
        times = Counter(entry.broker for entry in earlier if entry.topic is None)
        return {
            broker: [
                Entry(
                    action,
                    _REASONS[action],
                    plan=self._plan,
                    broker=broker,
                    attempt=times[broker],
                    before=before[broker],
                    after=change.value,
                    who=self._who,
                )
            ]
            for broker, change in changes.items()
        }

    def _list_entries(self, action: Action, topic: str, several: Collection[str]) -> list[Entry]:
        named = [
            (TopicPartition(topic, int(number)), int(broker))
            for number, broker in (entry.split(":") for entry in several)
        ]
        return [
            Entry(
                action,
                _REASONS[action],
                plan=self._plan,
                topic=topic,
                partition=partition.partition,
                broker=broker,
                attempt=self._attempts.get(partition, 0),
                who=self._who,
            )
            for partition, broker in named
        ]


_REASONS = {
    Action.THROTTLE: "a replica is about to be copied to this broker",
    Action.UNTHROTTLE: "the copying that it was for has ended",
}


def _without(key: str, now: Collection[str], owed: Collection[str], borrowed: Borrowed) -> ConfigChange:
    """Take our entries out of a list; a list that did not exist before, and would be empty, goes with them."""
    if borrowed.before is None and set(now) <= set(owed):
        return ConfigChange(key, ConfigOp.DELETE)
    return ConfigChange(key, ConfigOp.SUBTRACT, ",".join(owed))


def _owed_rate(borrowed: Borrowed) -> OwedRate:
    return OwedRate(int(borrowed.ours or 0), _number(borrowed.before))


def _number(value: str | None) -> int | None:
    return None if value is None else int(value)
