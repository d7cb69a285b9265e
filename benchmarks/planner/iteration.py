"""A short reading of the iteration that KAFKA-19048 describes, one topic at a time, to compare plans with.

It was written from the KIP's text alone: quotas per rack and broker, then replicas leave the brokers that break the
rack rule, then those above their quota, for brokers below theirs; leaders by the largest gap to their target; and the
next in line by the rarest pair. What the text leaves open is chosen in favour of fewer moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

Assignment = list[list[int]]


def rebalanced(topic: Assignment, targets: Sequence[int], rack: Mapping[int, str]) -> Assignment:
    """New assignments of one topic's partitions."""
    placed = [list(replicas) for replicas in topic]
    load = Counter(broker for replicas in placed for broker in replicas)
    quota = _quotas(placed, targets, rack, load)
    while step := _next_step(placed, quota, load, rack):
        number, giver, taker = step
        placed[number][placed[number].index(giver)] = taker
        load[giver] -= 1
        load[taker] += 1
    return _ordered(_led(placed, targets))


def _quotas(topic: Assignment, targets: Sequence[int], rack: Mapping[int, str], load: Counter[int]) -> dict[int, int]:
    """How many replicas each broker should hold: shares of the racks first, remainders to whoever holds most."""
    members: dict[str, list[int]] = {}
    for broker in targets:
        members.setdefault(rack[broker], []).append(broker)
    total = sum(map(len, topic))
    quota: dict[int, int] = {}
    for name, share in _rack_shares(members, total, len(topic)).items():
        whole, rest = divmod(share, len(members[name]))
        by_load = sorted(members[name], key=lambda broker: (-load[broker], broker))
        quota.update({broker: whole + (at < rest) for at, broker in enumerate(by_load)})
    return quota


def _rack_shares(members: Mapping[str, Sequence[int]], total: int, partitions: int) -> dict[str, int]:
    """By the brokers' number, but no rack holds a partition twice as long as others are free (largest racks first)."""
    factor = -(-total // max(partitions, 1))
    cap = partitions if len(members) >= factor else total
    shares: dict[str, int] = {}
    open_ones = sorted(members, key=lambda name: (-len(members[name]), name))
    for name in list(open_ones):
        weight = Fraction(len(members[name]), sum(len(members[one]) for one in open_ones))
        if weight * (total - sum(shares.values())) >= cap:
            shares[name] = cap
            open_ones.remove(name)
    left, brokers = total - sum(shares.values()), sum(len(members[name]) for name in open_ones)
    exact = {name: Fraction(len(members[name]) * left, brokers) for name in open_ones}
    shares.update({name: int(value) for name, value in exact.items()})
    for name in sorted(open_ones, key=lambda one: (shares[one] - exact[one], one))[: total - sum(shares.values())]:
        shares[name] += 1
    return shares


def _next_step(
    placed: Assignment, quota: Mapping[int, int], load: Counter[int], rack: Mapping[int, str]
) -> tuple[int, int, int] | None:
    """Partition, giver and taker of the next move; None when nothing is left to do, or nothing can be done."""
    takers = sorted((one for one in quota if load[one] < quota[one]), key=lambda one: (load[one] - quota[one], one))
    for number, giver in _wanted(placed, quota, load, rack):
        others = [one for one in placed[number] if one != giver]
        held = {rack[one] for one in others}
        for taker in takers:
            if taker not in others and rack[taker] not in held:
                return number, giver, taker
    return None


def _wanted(
    placed: Assignment, quota: Mapping[int, int], load: Counter[int], rack: Mapping[int, str]
) -> Iterator[tuple[int, int]]:
    """What should move, in order of urgency: off brokers that are no target, off shared racks, off full brokers."""
    full = sorted(load, key=lambda one: (quota.get(one, 0) - load[one], one))
    for giver in full:
        if giver not in quota:
            yield from ((number, giver) for number, held in enumerate(placed) if giver in held)
    for number, held in enumerate(placed):
        racks = Counter(rack[one] for one in held)
        yield from ((number, one) for one in full if one in held and racks[rack[one]] > 1)
    for giver in full:
        if giver in quota and load[giver] > quota[giver]:
            yield from ((number, giver) for number, held in enumerate(placed) if giver in held)


def _led(placed: Assignment, targets: Sequence[int]) -> Assignment:
    """Leaders: brokers with few replicas lead all of them, the others an equal share of the rest."""
    load = Counter(broker for replicas in placed for broker in replicas)
    aim = dict.fromkeys(targets, 0.0)
    rest, partitions = sorted(targets, key=lambda one: (load[one], one)), len(placed)
    while rest and load[rest[0]] <= partitions / len(rest):
        light = rest.pop(0)
        aim[light] = load[light]
        partitions -= load[light]
    aim.update({one: partitions / len(rest) for one in rest})
    led: Counter[int] = Counter()
    result = []
    for replicas in placed:
        # Among equals the present leader stays.
        leader = max(replicas, key=lambda one: (aim.get(one, 0) - led[one], -replicas.index(one)))
        led[leader] += 1
        result.append([leader, *(one for one in replicas if one != leader)])
    return result


def _ordered(placed: Assignment) -> Assignment:
    """The rarest pair of neighbours next."""
    pairs: Counter[tuple[int, int]] = Counter()
    result = []
    for leader, *others in placed:
        order = [leader]
        while others:
            nearest = min(others, key=lambda one: (pairs[order[-1], one], others.index(one)))
            pairs[order[-1], nearest] += 1
            others.remove(nearest)
            order.append(nearest)
        result.append(order)
    return result
