"""A cluster that the command line names by its brokers: for the verbs that only look, without Airflow and a journal."""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from kafka_steward.assignment import counted
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.connection import client_config, is_client_key, override_config
from kafka_steward.errors import SettingError
from kafka_steward.hooks.cluster_config import ClusterConfig
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.store import open_journal
from kafka_steward.settings import Settings

#: The place of a connection's id, where a message names a command that needs one.
CONN_ID = "CONN_ID"
#: The most bytes of a file of client settings.
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class DirectAccess:
    """The cluster behind `servers`, reached as the file `command_config` says, which Kafka's own tools take too."""

    servers: str
    command_config: str | None = None

    @property
    def options(self) -> str:
        """The options by which this cluster is named."""
        config = f" --command-config {shlex.quote(self.command_config)}" if self.command_config else ""
        return f"--bootstrap-server {shlex.quote(self.servers)}{config}"

    @cached_property
    def access(self) -> ClusterConfig:
        """The client's configuration, with the default of every setting. Raises SettingError, naming file and key."""
        for server in list(filter(None, map(str.strip, self.servers.split(",")))) or [""]:
            if "@" in server:  # what stands before it may be a password
                raise SettingError("--bootstrap-server has an @; write host:port, and user and password in a file.")
            port = re.search(r"[^:]:([0-9]+)$", server)
            if port is None or not 0 < int(port[1]) < 65_536:
                raise SettingError(f"--bootstrap-server has {server!r}; write host:port, such as b1.example.com:9092.")
        given = read_command_config(self.command_config) if self.command_config else {}
        client = override_config(given, {"bootstrap_servers": self.servers})
        return ClusterConfig(CONN_ID, Settings(), workspace="", client=client, journal="")

    def cluster(self) -> KafkaCluster:
        """Connect. The caller closes it. Raises as `KafkaCluster` does."""
        client = self.access.client
        with _naming(self.command_config):
            return KafkaCluster(client)

    def open(self) -> ClusterSession:
        """Connect, and open an empty journal that is deleted with the session. Raises as `cluster` does."""
        cluster = self.cluster()
        folder = TemporaryDirectory(prefix="kafka-steward-")
        try:
            journal = open_journal(f"sqlite:///{folder.name}/journal.db", cluster.cluster_id)
            journal.conn_id = CONN_ID
            session = ClusterSession(self.access, cluster, journal)
            session.add_close_callback(folder.cleanup)
        except BaseException:
            with closing(cluster):
                folder.cleanup()
            raise
        return session


def read_command_config(path: str) -> dict[str, object]:
    """Return the settings of a client in a Java properties file, as kafka-python has them. Raises SettingError."""
    from javaproperties import InvalidUEscapeError, load  # noqa: PLC0415 - only with such a file

    try:
        status = Path(path).stat()
        # A device or a pipe may never end.
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            raise SettingError(f"{path} of --command-config is not a file of at most {_MAX_BYTES >> 20} MB.")
        with Path(path).open("rb") as file:
            given = load(file)
    except (OSError, InvalidUEscapeError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingError(f"The file {path} of --command-config cannot be read: {why}.") from error
    unknown = [key for key in given if not is_client_key(key)]
    # What is no key may be a part of a password, after a line that was to be continued.
    names = [key for key in unknown if re.fullmatch(r"[a-z][a-z0-9]*([._-][a-z0-9]+)+", key)]
    if names:
        raise SettingError(
            f"The file {path} of --command-config has {', '.join(names)}, which our client does not know: remove "
            f"{'it, or correct its' if len(names) == 1 else 'them, or correct their'} spelling."
        )
    if unknown:
        raise SettingError(
            f"The file {path} of --command-config has {counted(len(unknown), 'line')} without a key, such as "
            "security.protocol=SASL_SSL: correct the file."
        )
    with _naming(path):
        return client_config(given)


@contextmanager
def _naming(path: str | None) -> Iterator[None]:
    """Let the message of a setting that cannot be used name the file that has it."""
    try:
        yield
    except SettingError as error:
        raise SettingError(f"The file {path} of --command-config: {error}" if path else str(error)) from error
