"""`python -m kafka_steward.demo`: a broker fails, and full replication is restored, on this machine."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from kafka_steward.demo.screen import Screen
from kafka_steward.demo.story import Scene, airflow_in, create_topics, folder, play
from kafka_steward.errors import StewardError
from kafka_steward.sandbox import start
from kafka_steward.sandbox.airflow import AirflowDag

_GRACE_S = 10.0
_THROTTLE = 8_000_000
_KAFKA = {"kraft": "Kafka 4.3 in KRaft mode", "zookeeper": "Kafka 3.9 with ZooKeeper"}


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; return 0 when the cluster was healed, 1 with a message when it was not, 130 when interrupted."""
    options = _parser().parse_args(arguments)
    # Needed also when a shell started the demo in the background, with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            try:
                _demo(stack, options.mode, keep=options.keep)
            finally:
                # Only the cleanup remains: a second Ctrl-C must not interrupt it.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        print("The demo was interrupted; everything that it started has ended.", file=sys.stderr)
        return 130
    except StewardError as error:
        print(f"The demo failed: {error}", file=sys.stderr)
        return 1
    return 0


def _demo(stack: ExitStack, mode: str, *, keep: bool) -> None:
    screen = Screen()
    screen.begin("Kafka Steward: a broker fails, and the cluster is fully replicated again")
    home = stack.enter_context(folder(keep=keep))
    scene = _set_up(stack, screen, mode, home)
    ending = play(scene)
    _say_where(scene, home, keep=keep)
    screen.last(str(ending))
    if keep:
        _wait_for_interrupt()


def _set_up(stack: ExitStack, screen: Screen, mode: str, home: Path) -> Scene:
    screen.step("start", "four brokers in three racks")
    sandbox = stack.enter_context(start(mode=mode, brokers=4, racks=3))
    screen.step("cluster", f"{_KAFKA[mode]} is up at {sandbox.bootstrap}")
    airflow, journal_url = airflow_in(home / "airflow", sandbox.bootstrap, grace_s=_GRACE_S, throttle=_THROTTLE)
    stack.enter_context(airflow)
    screen.step("airflow", f"api-server, scheduler, dag-processor and triggerer are healthy at {airflow.url}")
    screen.step("topics", create_topics(sandbox))
    heal = AirflowDag(airflow, "heal")
    heal.unpause()
    screen.step("unpaused", "the DAG heal is active: its watch polls the cluster every 2 s")
    return Scene(screen, sandbox, airflow, heal, journal_url, _GRACE_S)


def _say_where(scene: Scene, home: Path, *, keep: bool) -> None:
    screen = scene.screen
    screen.say(f"Airflow UI: {scene.airflow.url}  (user admin, password admin)")
    if keep:
        screen.say(f"Kafka: {scene.sandbox.bootstrap}")
        screen.say(f"Files: {home}")
        screen.say("Ctrl-C stops everything.")


def _wait_for_interrupt() -> None:
    try:
        signal.pause()
    except KeyboardInterrupt:
        return


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kafka_steward.demo",
        description="Starts a real Kafka cluster and a real Airflow on 127.0.0.1, kills a broker, and shows how the "
        "DAG `heal` restores full replication. Takes a few minutes; leaves nothing running.",
    )
    parser.add_argument("--mode", choices=("kraft", "zookeeper"), default="kraft", help="Kafka 4.3 with KRaft, or 3.9")
    parser.add_argument("--keep", action="store_true", help="leave everything running until Ctrl-C, to explore it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
