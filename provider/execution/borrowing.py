"""Throttles, borrowed from Kafka's configuration while replicas move, and given back. Nothing is kept in memory.

What is borrowed is written down before Kafka is changed: a list entry by the plan that added it, a rate with what was
there before. What is owed at any moment is what is written down less what is still needed; so whoever steps next, or
nobody but the watch, can give it back. A rate is shared by the plans that are written down at it, and is the
strictest of theirs; it is put back by the last of them, and only where it is still one that we set. Each step of a plan
sets again what someone else cleared, and brings its brokers to the rate that is asked for now (decisions/rates.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.cluster.throttles import OwedRate, Side, absent, listed, rate_change
from kafka_steward.errors import (
    BrokerUnreachable,
    ClusterError,
    KafkaRefused,
    NodeExists,
    NodeMissing,
    VersionConflict,
)
from kafka_steward.execution.decisions.need import NOTHING, Need
from kafka_steward.execution.decisions.rates import returned, set_late, to_set
from kafka_steward.execution.deeds import Deeds
from kafka_steward.execution.owner import new_owner
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Entry, Who
from kafka_steward.journal.codec import is_topic
from kafka_steward.journal.open import Journal
from kafka_steward.journal.records import Borrowed
from kafka_steward.journal.tree import Node

__all__ = ["Borrowing", "give_back_of", "rates_noted"]

_UNKNOWN_TOPIC = 3
#: How often a late note is written again when others change the same document.
_TRIES = 10


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

        Someone else's rate that is as strict is left alone.

        The rates come last: a broker of a ZooKeeper cluster that has heard of its rate has heard of the lists.
        """
        for side in Side:
            brokers = sorted(broker for broker, of in need.brokers if of is side)
            self._borrow_entries(side, {topic: several for (topic, of), several in need.entries.items() if of is side})
            self._borrow_rates(side, brokers, str(rate))

    def hold(self, need: Need, rate: int | None, live: frozenset[int]) -> None:
        """Throttle again what `need` names and someone else has cleared, and bring what is borrowed to `rate`.

        With None as the rate, to what this plan asked for before. A broker that does not answer is left to the next
        step.
        """
        asked = None if rate is None else str(rate)
        for side in Side:
            self._borrow_entries(side, {topic: several for (topic, of), several in need.entries.items() if of is side})
            noted = {paths.broker_of(name) for name, _, _ in self._borrowed("broker", side.rate_key)}
            brokers = {broker for broker, of in need.brokers if of is side} | noted
            self._borrow_rates(side, sorted(live & brokers), asked, insist=False)

    def give_back(self, need: Need, live: frozenset[int]) -> list[int]:
        """Give back all that this plan borrowed and `need` does not name; returns the brokers that still owe a rate.

        A broker's setting can be changed only while it lives: of a dead one it stays written down, for later.
        """
        owed = []
        for side in Side:
            self._return_entries(side, need)
            owed += self._return_rates(side, need, live)
        return sorted(owed)

    def _borrow_rates(self, side: Side, brokers: Collection[int], rate: str | None, *, insist: bool = True) -> None:
        if not brokers:
            return
        now = self._cluster.broker_configs(brokers, [side.rate_key], own_only=True)
        silent = [broker for broker in brokers if broker not in now]
        if insist and silent and side is Side.FOLLOWER:
            raise BrokerUnreachable(silent[0], f"Broker {silent[0]} does not answer, so its throttle cannot be set.")
        changes, before = {}, {}
        for broker in sorted(now):
            had = now[broker].get(side.rate_key)
            wanted = self._note_rate(paths.borrowed("broker", str(broker), side.rate_key), rate, had)
            if wanted is not None:
                changes[broker], before[broker] = ConfigChange(side.rate_key, ConfigOp.SET, wanted), had
        entries = self._rate_entries(Action.THROTTLE, changes, before)
        answers = self._deeds.do(
            entries,
            lambda batch: self._change_rates(changes, batch),
            late=lambda batch: self._note_late_rates(
                side, {broker: (changes[broker].value, before[broker]) for broker in batch}
            ),
        )
        tolerated = () if insist else (BrokerUnreachable,)
        self._insist([error for error in answers.values() if not isinstance(error, tolerated)])

    def _borrow_entries(self, side: Side, wanted: Mapping[str, frozenset[str]]) -> None:
        now = self._cluster.topic_configs(list(wanted), [side.replicas_key], own_only=True)
        ours, entries = {}, {}
        for topic in sorted(wanted.keys() & now.keys()):
            had = now[topic].get(side.replicas_key)
            add = absent(had, sorted(wanted[topic]))
            if add:
                self._note_entries(paths.borrowed("topic", topic, side.replicas_key), had, add)
                ours[topic] = ConfigChange(side.replicas_key, ConfigOp.APPEND, ",".join(add))
                entries[topic] = self._list_entries(Action.THROTTLE, topic, add)
        answers = self._deeds.do(
            entries,
            lambda batch: self._change_lists(ours, batch),
            late=lambda batch: self._note_late_entries(side, {topic: listed(ours[topic].value) for topic in batch}),
        )
        self._insist(answers.values())

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
            change = rate_change(_number(returned(borrowed, now)), _owed_rate(borrowed), side.rate_key)
            if change is not None and borrowed.ours is not None and borrowed.entries.keys() == {self._plan}:
                changes[broker], before[broker] = change, now
        entries = self._rate_entries(Action.UNTHROTTLE, changes, before)
        answers = self._deeds.do(entries, lambda batch: self._change_rates(changes, batch))
        for broker in reached:
            if answers.get(broker) is None:
                node, borrowed = mine[broker]
                self._forget(node, borrowed, borrowed.entries[self._plan])
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

    def _note_entries(self, path: str, had: str | None, add: Collection[str]) -> None:
        """Write down list entries that this plan is about to add; what others, or an earlier step, wrote down stays.

        A list that is not there any more was cleared by someone: then it is taken away with our entries.
        """
        node = self._journal.tree.get(path)
        known = None if node is None else Borrowed.from_node(node)
        noted = known or Borrowed(had, None)
        mine = tuple(sorted({*noted.entries.get(self._plan, ()), *add}))
        before = None if had is None else noted.before
        self._write(path, node, known, replace(noted, before=before, entries={**noted.entries, self._plan: mine}))

    def _note_rate(self, path: str, rate: str | None, now: str | None) -> str | None:
        """Write down the rate that this plan asks for; returns the rate to set, None for none."""
        node = self._journal.tree.get(path)
        known = None if node is None else Borrowed.from_node(node)
        noted, wanted = to_set(known, self._plan, rate, now)
        if noted is not None:
            self._write(path, node, known, noted)
        return wanted

    def _note_late_rates(self, side: Side, late: Mapping[int, tuple[str | None, str | None]]) -> None:
        """Write down again what was set after the lock was lost: whoever gives back what ended plans owe finds it."""
        for broker, (rate, before) in late.items():
            path = paths.borrowed("broker", str(broker), side.rate_key)
            self._write_late(path, partial(set_late, plan=self._plan, rate=rate or "0", before=before))

    def _note_late_entries(self, side: Side, late: Mapping[str, Collection[str]]) -> None:
        for topic, added in late.items():

            def noted(known: Borrowed | None, added: Collection[str] = added) -> Borrowed:
                there = known or Borrowed(None, None)
                mine = tuple(sorted({*there.entries.get(self._plan, ()), *added}))
                return replace(there, entries={**there.entries, self._plan: mine})

            self._write_late(paths.borrowed("topic", topic, side.replicas_key), noted)

    def _write_late(self, path: str, noted: Callable[[Borrowed | None], Borrowed]) -> None:
        """Write what `noted` makes of what is there: without the lock, others write it at the same time."""
        for _ in range(_TRIES):
            node = self._journal.tree.get(path)
            known = None if node is None else Borrowed.from_node(node)
            with suppress(NodeExists, NodeMissing, VersionConflict):
                self._write(path, node, known, noted(known))
                return

    def _write(self, path: str, node: Node | None, known: Borrowed | None, noted: Borrowed) -> None:
        if node is None:
            self._journal.tree.create(path, noted.to_json())
        elif noted != known:
            self._journal.tree.set(path, noted.to_json(), version=node.version)

    def _forget(self, node: Node, borrowed: Borrowed, owed: Collection[str]) -> None:
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


def give_back_of(
    cluster: ClusterPort, journal: Journal, plans: Collection[str], live: frozenset[int], who: Who
) -> None:
    """Give back what plans that have ended still have borrowed, as far as that can be.

    Raises ClusterError, and LockLost while a plan is being stepped: it is still written down then.
    """
    for plan in plans:
        attempts = {row.topic_partition: row.attempt for row in journal.plans.rows_found(plan)}
        with journal.step_lock(new_owner()) as fence:
            deeds = Deeds(journal.audit, fence)
            Borrowing(cluster, journal, deeds, plan, attempts=attempts, who=who).give_back(NOTHING, live)


def rates_noted(journal: Journal, plans: Collection[str]) -> list[tuple[int, Side]]:
    """Return the rates that are written down as borrowed by these plans: what was given back is struck out. Sorted."""
    found = []
    for name in journal.tree.children(paths.borrowed_below("broker")):
        broker = paths.broker_of(name)
        for side in Side:
            node = journal.tree.get(paths.borrowed("broker", name, side.rate_key))
            if node is not None and broker is not None and set(plans) & Borrowed.from_node(node).entries.keys():
                found.append((broker, side))
    return sorted(found)


def _without(key: str, now: Collection[str], owed: Collection[str], borrowed: Borrowed) -> ConfigChange:
    """Take our entries out of a list; a list that did not exist before, and would be empty, goes with them."""
    if borrowed.before is None and set(now) <= set(owed):
        return ConfigChange(key, ConfigOp.DELETE)
    return ConfigChange(key, ConfigOp.SUBTRACT, ",".join(owed))


def _owed_rate(borrowed: Borrowed) -> OwedRate:
    return OwedRate(int(borrowed.ours or 0), _number(borrowed.before))


def _number(value: str | None) -> int | None:
    return None if value is None else int(value)
