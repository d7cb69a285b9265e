"""The commands that findings name, as a person types them for one cluster. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Whom Kafka sees without a login.
_ANONYMOUS = "ANONYMOUS"
#: A name that only the person at the keyboard knows, such as that of a certificate.
_UNKNOWN = "PRINCIPAL"


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands for the cluster behind `conn_id`, whose bootstrap servers are `servers`.

    `principal` is the user as which Kafka knows us. With `secured`, Kafka's own tools need a file of client settings.
    """

    conn_id: str
    servers: str = "SERVERS"
    principal: str = _UNKNOWN
    secured: bool = False

    @classmethod
    def of(cls, conn_id: str, client: Mapping[str, Any], servers: str) -> Commands:
        """Return the commands for a cluster that is reached by the configuration `client` of a Kafka client."""
        protocol = str(client.get("security_protocol", "PLAINTEXT"))
        user = client.get("sasl_plain_username") if protocol.startswith("SASL") else None
        principal = str(user) if user else _ANONYMOUS if protocol == "PLAINTEXT" else _UNKNOWN
        return cls(conn_id, servers, principal, protocol != "PLAINTEXT")

    def steward(self, words: str) -> str:
        """Return a command of our own for this cluster."""
        return f"airflow kafka-steward {words} --cluster {shlex.quote(self.conn_id)}"

    def grant(self, resource: str, operation: str) -> str:
        """Return the command that grants us `operation`; `resource` is an option of kafka-acls, such as `--cluster`."""
        who = shlex.quote(f"User:{self.principal}")
        return self._tool("kafka-acls.sh", f"--add --allow-principal {who} --operation {operation} {resource}")

    def set_on_brokers(self, name: str, value: str) -> str:
        """Return the command that sets one setting on all brokers."""
        return self._tool(
            "kafka-configs.sh", f"--alter --entity-type brokers --entity-default --add-config {name}={value}"
        )

    def show_connection(self) -> str:
        """Return the command that shows what the connection says."""
        return f"airflow connections get {shlex.quote(self.conn_id)}"

    def add_connection(self) -> str:
        """Return the command that creates the connection."""
        return (
            f"airflow connections add {shlex.quote(self.conn_id)} --conn-type kafka_steward --conn-host "
            "broker1:9092,broker2:9092"
        )

    @property
    def connection(self) -> str:
        """The options by which Kafka's own tools connect to this cluster."""
        settings = " --command-config admin.properties" if self.secured else ""
        return f"--bootstrap-server {shlex.quote(self.servers)}{settings}"

    def _tool(self, tool: str, words: str) -> str:
        return f"{tool} {self.connection} {words}"


def set_for_airflow(name: str, value: str) -> str:
    """Return the command that sets a setting of the section [kafka_steward] for the process that is started next."""
    return f"export AIRFLOW__KAFKA_STEWARD__{name.upper()}={value}"
