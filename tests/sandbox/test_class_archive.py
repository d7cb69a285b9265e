"""Kafka's classes are loaded from an archive that is recorded once, and without one everything works as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.jvm import class_archive

pytestmark = pytest.mark.process


def test_every_broker_maps_the_same_archive(sandbox: Sandbox) -> None:
    maps = [Path(f"/proc/{broker.pid}/maps").read_text().splitlines() for broker in sandbox.brokers.values()]
    archives = [{line.split()[-1] for line in lines if line.endswith(".jsa") and "classes-" in line} for lines in maps]
    assert len(archives[0]) == 1
    assert archives == [archives[0]] * 4


def test_a_java_that_can_record_none_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_STEWARD_CACHE", str(tmp_path / "cache"))
    java, asked = tmp_path / "java", tmp_path / "asked"
    java.write_text(f"#!/bin/sh\necho once >> {asked}\nexit 1\n")
    java.chmod(0o755)
    assert [class_archive(java, []) for _ in range(2)] == [None, None]
    assert asked.read_text() == "once\n"
