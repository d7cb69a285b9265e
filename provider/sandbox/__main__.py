"""`python -m kafka_steward.sandbox`: a real cluster in the foreground."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from kafka_steward.errors import StewardError
from kafka_steward.sandbox.cluster import Sandbox, start
from kafka_steward.sandbox.modes import MODES

_DESCRIPTION = """\
Starts a real Kafka cluster on this machine and keeps it running until Ctrl-C or SIGTERM.

When every broker is ready, one line of JSON, and nothing else, is printed on standard output:
  {"mode": "kraft", "bootstrap": "127.0.0.1:…,…", "zookeeper": null,
   "brokers": [{"id": 1, "rack": "a", "port": …, "pid": …}, …]}
Kill a broker by its pid to see what a crash does. The cluster listens on 127.0.0.1 only, and stops when this
process ends for any reason. The first run downloads Kafka (about 45 MB) into ~/.cache/kafka-steward, or into
$KAFKA_STEWARD_CACHE."""
_EXAMPLES = """\
examples:
  python -m kafka_steward.sandbox                                       4 KRaft brokers in 3 racks
  python -m kafka_steward.sandbox --mode zookeeper --brokers 5          Kafka 3.9 with ZooKeeper
  python -m kafka_steward.sandbox --folder /tmp/kafka                   keep logs and data there"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 0 after a signal, 1 if the cluster did not start or failed."""
    options = _build_parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _start_sandbox(options) as sandbox:
            known = {"mode": sandbox.mode, "bootstrap": sandbox.bootstrap, "zookeeper": sandbox.zookeeper}
            print(json.dumps({**known, "brokers": list(map(asdict, sandbox.brokers.values()))}), flush=True)
            while True:
                # Brokers may be killed from outside; without its controller or ZooKeeper, a cluster is of no use.
                sandbox.require_service()
                time.sleep(0.5)
    except KeyboardInterrupt:
        _print_message("ended")
        return 0
    except StewardError as error:
        _print_message(str(error))
        return 1


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kafka_steward.sandbox",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mode", choices=sorted(MODES), default="kraft", help="where metadata lives (default: kraft)")
    parser.add_argument("--brokers", type=int, default=4, metavar="N", help="how many brokers (default: 4)")
    parser.add_argument(
        "--racks", type=int, default=3, metavar="N", help="how many racks they are spread over (default: 3)"
    )
    parser.add_argument("--folder", type=Path, help="keep logs and data here (default: a temporary folder)")
    parser.add_argument(
        "--session-timeout-ms",
        type=int,
        metavar="MS",
        help="how soon a silent broker counts as gone (default: 3000 with kraft, 4000 with zookeeper)",
    )
    return parser


def _start_sandbox(options: argparse.Namespace) -> Sandbox:
    began = time.monotonic()
    _print_message(f"starting Kafka {MODES[options.mode].version} ({options.mode})")
    sandbox = start(
        options.mode,
        brokers=options.brokers,
        racks=options.racks,
        folder=options.folder,
        session_timeout_ms=options.session_timeout_ms,
    )
    _print_message(f"ready after {time.monotonic() - began:.1f} s in {sandbox.folder}; Ctrl-C ends it")
    return sandbox


def _print_message(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
