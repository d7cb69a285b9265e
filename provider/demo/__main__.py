"""`python -m kafka_steward.demo`: a broker fails, and full replication is restored, on this machine."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack, suppress

from kafka_steward.demo.screen import Screen
from kafka_steward.demo.story import DemoSetup, create_airflow, create_topics, demo_folder, play_demo
from kafka_steward.errors import StewardError
from kafka_steward.sandbox import start
from kafka_steward.sandbox.airflow import AirflowDag

_GRACE_S = 10.0
_SETTINGS = {"heal_failure_interval": _GRACE_S, "throttle": 8_000_000, "heal_chunk_size": 12}
_KAFKA = {"kraft": "Kafka 4.3 in KRaft mode", "zookeeper": "Kafka 3.9 with ZooKeeper"}


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; return 0 when the cluster was healed, 1 with a message when it was not, 130 when interrupted."""
    options = _build_parser().parse_args(arguments)
    # Needed also when a shell started the demo in the background, with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            try:
                _run_demo(stack, options.mode, keep=options.keep)
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


def _run_demo(stack: ExitStack, mode: str, *, keep: bool) -> None:
    screen = Screen()
    screen.begin("Kafka Steward: a broker fails, and the cluster is fully replicated again")
    home = stack.enter_context(demo_folder(keep=keep))
    screen.print_step("start", "four brokers in three racks")
    sandbox = stack.enter_context(start(mode=mode, brokers=4, racks=3))
    screen.print_step("cluster", f"{_KAFKA[mode]} is up at {sandbox.bootstrap}")
    airflow, journal_url = create_airflow(home / "airflow", sandbox.bootstrap, **_SETTINGS)
    stack.enter_context(airflow)
    screen.print_step("airflow", f"api-server, scheduler, dag-processor and triggerer are healthy at {airflow.url}")
    screen.print_step("topics", create_topics(sandbox))
    heal = AirflowDag(airflow, "heal")
    heal.unpause()
    screen.print_step("unpaused", "the DAG heal is active: its watch polls the cluster every 2 s")
    ending = play_demo(DemoSetup(screen, sandbox, heal, journal_url, _GRACE_S))
    screen.print_line(f"Airflow UI: {airflow.url}  (user admin, password admin)")
    if keep:
        screen.print_line(f"Kafka: {sandbox.bootstrap}")
        screen.print_line(f"Files: {home}")
        screen.print_line("Ctrl-C stops everything.")
    screen.print_last_line(str(ending))
    if keep:
        with suppress(KeyboardInterrupt):
            signal.pause()


def _build_parser() -> argparse.ArgumentParser:
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
