from __future__ import annotations

import threading
import time

import pytest

from kafka_steward.cluster.client import limit_concurrent_decoding


def test_one_is_within_at_a_time() -> None:
    within, most = 0, 0
    counting = threading.Lock()

    def read() -> None:
        nonlocal within, most
        with limit_concurrent_decoding(20):
            with counting:
                within += 1
                most = max(most, within)
            time.sleep(0.01)
            with counting:
                within -= 1

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (within, most) == (0, 1)


def test_one_that_hangs_holds_up_the_next_for_a_moment_only_and_keeps_its_own_turn() -> None:
    hanging, release = threading.Event(), threading.Event()

    def hang() -> None:
        with limit_concurrent_decoding():
            hanging.set()
            release.wait(20)

    thread = threading.Thread(target=hang)
    thread.start()
    assert hanging.wait(20)
    with limit_concurrent_decoding(0.01):
        pass
    third = limit_concurrent_decoding(0.01)
    began = time.monotonic()
    with third:
        waited_s = time.monotonic() - began
    assert waited_s >= 0.01  # who went ahead has not given back a turn that was never its own
    release.set()
    thread.join()


def test_a_turn_is_given_back_when_the_reading_fails() -> None:
    def fail() -> None:
        with limit_concurrent_decoding(20):
            raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        fail()
    began = time.monotonic()
    with limit_concurrent_decoding(20):
        assert time.monotonic() - began < 10
