"""Findings of checks, the commands that they name, and checks at the same time with a common limit."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from kafka_steward.cluster.state import Broker
from kafka_steward.commands import command_line, connection_options
from kafka_steward.errors import StewardError

#: Whom Kafka sees without a login.
_ANONYMOUS = "ANONYMOUS"
#: A name that only the person at the keyboard knows, such as that of a certificate.
_UNKNOWN = "PRINCIPAL"


class Level(StrEnum):
    """The consequence of a finding for the work of Kafka Steward."""

    #: It works.
    OK = "ok"
    #: It works, and a person should know this.
    NOTE = "note"
    #: Something will not work.
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was checked, and one sentence. `command` is what helps: one command a line; a fault has one."""

    subject: str
    level: Level
    sentence: str
    command: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return {**asdict(self), "level": self.level.value}


@dataclass(frozen=True, slots=True)
class Check:
    """A check; `subject` and `command` are those of its finding when it fails or takes too long."""

    subject: str
    run: Callable[[], Sequence[Finding]]
    command: str


def run_checks(checks: Sequence[Check], *, within_s: float) -> list[Finding]:
    """Run all checks at the same time, and return their findings in order, after `within_s` seconds at the latest.

    A check that has not ended by then is left behind in its thread, which does not keep the process from ending.
    """
    deadline = time.monotonic() + within_s
    runs = [_Run(check) for check in checks]
    for run in runs:
        run.start()
    for run in runs:
        run.join(max(0.0, deadline - time.monotonic()))
    return [finding for run in runs for finding in run.result(within_s)]


class _Run(threading.Thread):
    def __init__(self, check: Check) -> None:
        super().__init__(name=f"doctor-{check.subject}", daemon=True)
        self._check = check
        self._findings: Sequence[Finding] | None = None

    def run(self) -> None:
        try:
            self._findings = self._check.run()
        except StewardError as error:
            self._findings = [self._fault(str(error))]
        except Exception as error:  # noqa: BLE001 - one check that fails must not hide the others
            words = f"{type(error).__name__}: {error}".splitlines()[0]
            self._findings = [self._fault(f"The check failed: {words}.")]

    def result(self, within_s: float) -> Sequence[Finding]:
        late = [self._fault(f"There was no answer within {within_s:g} s.")]
        return late if self._findings is None else self._findings

    def _fault(self, sentence: str) -> Finding:
        return Finding(self._check.subject, Level.FAULT, sentence, self._check.command)


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands for the cluster behind `conn_id`, whose bootstrap servers are `servers`.

    `principal` is the user as which Kafka knows us. With `secured`, Kafka's own tools need a file of client settings.
    `direct` are the options by which the command line named the cluster instead, if it did.
    """

    conn_id: str
    servers: str = "SERVERS"
    principal: str = _UNKNOWN
    secured: bool = False
    direct: str = ""

    @classmethod
    def of(cls, conn_id: str, client: Mapping[str, Any], servers: str, direct: str = "") -> Commands:
        """Return the commands for a cluster that is reached by the configuration `client` of a Kafka client."""
        protocol = str(client.get("security_protocol", "PLAINTEXT"))
        user = client.get("sasl_plain_username") if protocol.startswith("SASL") else None
        principal = str(user) if user else _ANONYMOUS if protocol == "PLAINTEXT" else _UNKNOWN
        return cls(conn_id, servers, principal, protocol != "PLAINTEXT", direct)

    def reaching(self, live: Mapping[int, Broker]) -> Commands:
        """Return the commands with the addresses of these live brokers."""
        return replace(self, servers=",".join(live[broker].address for broker in sorted(live))) if live else self

    def steward(self, words: str) -> str:
        """Return a command of our own for this cluster."""
        return command_line(words, self.conn_id, self.direct)

    def grant(self, resource: str, operation: str) -> str:
        """Return the command that grants us `operation`; `resource` is an option of kafka-acls, such as `--cluster`."""
        who = shlex.quote(f"User:{self.principal}")
        return f"kafka-acls.sh {self.connection} --add --allow-principal {who} --operation {operation} {resource}"

    def set_on_brokers(self, name: str, value: str) -> str:
        """Return the command that sets one setting on all brokers."""
        options = f"--alter --entity-type brokers --entity-default --add-config {name}={value}"
        return f"kafka-configs.sh {self.connection} {options}"

    def show_connection(self) -> str:
        """Return the command that shows what the connection says."""
        return f"airflow connections get {shlex.quote(self.conn_id)}"

    def add_connection(self) -> str:
        """Return the command that creates the connection."""
        fields = "--conn-type kafka_steward --conn-host broker1:9092,broker2:9092"
        return f"airflow connections add {shlex.quote(self.conn_id)} {fields}"

    @property
    def connection(self) -> str:
        """The options by which Kafka's own tools connect to this cluster."""
        return connection_options(self.servers.split(","), secured=self.secured)


def set_for_airflow(name: str, value: str) -> str:
    """Return the command that sets a setting of the section [kafka_steward] for the process that is started next."""
    return f"export AIRFLOW__KAFKA_STEWARD__{name.upper()}={value}"
