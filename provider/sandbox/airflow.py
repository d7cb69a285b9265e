"""A real Airflow on this machine: four processes on 127.0.0.1, an AIRFLOW_HOME and a database of its own.

A DAG of it is used over its REST API: unpause it, trigger it, read its runs, tasks and logs.

`airflow standalone` is not used: like a plain `airflow scheduler`, it serves task logs on every interface. The parts
are started one by one with `--skip-serve-logs`; only the api-server listens.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from kafka_steward.errors import StewardError
from kafka_steward.sandbox.cluster_layout import pick_ports
from kafka_steward.sandbox.processes import ProcessGroup, run_to_end

_EVERY_S = 0.5
#: Seconds within which the api-server answers.
_ANSWER_S = 30.0

_ENDED = frozenset({"success", "failed"})


class AirflowDag:
    """The DAG `dag_id` of `airflow`, with the permissions of `user`. Every method may raise AirflowFailed."""

    def __init__(self, airflow: LocalAirflow, dag_id: str, *, user: str = "admin") -> None:
        self.dag_id = dag_id
        self._airflow = airflow
        self._user = user

    def unpause(self, *, within_s: float = 180.0) -> None:
        """Wait until the dag-processor has found the DAG, and unpause it."""
        deadline = time.monotonic() + within_s
        path = f"/api/v2/dags?dag_id_pattern={quote(self.dag_id)}&exclude_stale=true"
        while not any(dag["dag_id"] == self.dag_id for dag in self._call_api("GET", path)["dags"]):
            if time.monotonic() > deadline:
                errors = self._call_api("GET", "/api/v2/importErrors")["import_errors"]
                raise AirflowFailed(f"The DAG {self.dag_id} was not found in {self._airflow.dags}: {errors}")
            time.sleep(_EVERY_S)
        self._call_api("PATCH", self._api_path(), {"is_paused": False})
        self._airflow.reread_dags()

    def trigger(self, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run; return its id."""
        answer = self._call_api("POST", self._api_path("dagRuns"), {"logical_date": None, "conf": dict(conf or {})})
        return str(answer["dag_run_id"])

    def list_runs(self) -> list[dict[str, Any]]:
        """Return the DAG's runs, oldest first, as in the REST API."""
        return list(self._call_api("GET", self._api_path("dagRuns") + "?order_by=run_after&limit=100")["dag_runs"])

    def latest_run(self) -> dict[str, Any] | None:
        """Return the newest run, if there is one."""
        runs = self.list_runs()
        return runs[-1] if runs else None

    def get_run(self, run_id: str) -> dict[str, Any]:
        """Return one run."""
        return dict(self._call_api("GET", self._api_path("dagRuns", run_id)))

    def wait_for_run(self, run_id: str, *, within_s: float = 300.0) -> dict[str, Any]:
        """Wait until a run has succeeded or failed; return the run."""
        deadline = time.monotonic() + within_s
        while (run := self.get_run(run_id))["state"] not in _ENDED:
            if time.monotonic() > deadline:
                states = {task["task_id"]: task["state"] for task in self.list_tasks(run_id)}
                raise AirflowFailed(f"{self.dag_id}, {run_id} is {run['state']} after {within_s:.0f} s: {states}")
            time.sleep(_EVERY_S)
        return run

    def list_tasks(self, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances of a run."""
        return list(self._call_api("GET", self._api_path("dagRuns", run_id, "taskInstances"))["task_instances"])

    def task_log(self, run_id: str, task_id: str, attempt: int = 1) -> str:
        """Return the log of one try of a task, a line per event."""
        path = self._api_path("dagRuns", run_id, "taskInstances", task_id, "logs", str(attempt))
        content = self._call_api("GET", path + "?full_content=true")["content"]
        return "\n".join(str(line["event"]) if isinstance(line, dict) else str(line) for line in content)

    def task_result(self, run_id: str, task_id: str) -> Any:
        """Return a task's result: its XCom `return_value`."""
        path = self._api_path("dagRuns", run_id, "taskInstances", task_id, "xcomEntries", "return_value")
        return self._call_api("GET", path)["value"]

    def _call_api(self, method: str, path: str, body: Any = None) -> Any:
        return self._airflow.call_api(method, path, body, user=self._user)

    def _api_path(self, *below: str) -> str:
        return "/".join(["/api/v2/dags", *(quote(part, safe="") for part in (self.dag_id, *below))])


_PARTS: Mapping[str, tuple[str, ...]] = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}

#: The api-server's text for a busy database, the number of retries, and the seconds between them.
_BUSY, _BUSY_TRIES, _BUSY_PAUSE_S = '"Database error"', 6, 1.0


class AirflowFailed(StewardError, RuntimeError):
    """The local Airflow did not start, or did not answer as expected."""


class AirflowSilent(AirflowFailed):
    """The api-server gave no answer in time: it is starting, or busy."""


class AirflowBusy(AirflowFailed):
    """The api-server's database was busy, and the request was not executed."""


class LocalAirflow:
    """A local Airflow. `start()` starts it, `stop()` ends it, and it always ends with its owner.

    `home` is AIRFLOW_HOME; DAG files go into `dags`. `users` maps a name to its role (admin, op, user, viewer); each
    user's password is the name. `connections` maps a conn_id to the JSON form of a connection. `environment` is added
    to the environment of all four parts, `part_environment` to that of one part, by its name. `database` is the URL of
    an empty PostgreSQL database (`postgresql+psycopg://...`); without one, Airflow keeps its state in SQLite.
    """

    def __init__(
        self,
        home: Path,
        *,
        connections: Mapping[str, Mapping[str, Any]] | None = None,
        users: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        part_environment: Mapping[str, Mapping[str, str]] | None = None,
        database: str | None = None,
    ) -> None:
        self.home = home
        self.dags = home / "dags"
        #: The command `airflow` of its Python environment. It may be changed while Airflow is stopped.
        self.program = Path(sys.executable).with_name("airflow")
        self.users = dict(users or {"admin": "admin"})
        (self._port,) = pick_ports(1)
        self._connections = dict(connections or {})
        self._extra = dict(environment or {})
        self._part_extra = dict(part_environment or {})
        self._database = database or f"sqlite:///{home}/airflow.db"
        self._keys = {name: secrets.token_urlsafe(32) for name in ("jwt", "api")}
        self._fernet = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        self._group = ProcessGroup(f"airflow:{home}")
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        self._tokens: dict[str, str] = {}

    @property
    def url(self) -> str:
        """The URL of the UI and the REST API."""
        return f"http://127.0.0.1:{self._port}"

    def start(self, *, within_s: float = 600.0) -> Self:
        """Create the database, start the four parts and wait until all are healthy. Raises AirflowFailed."""
        self.dags.mkdir(parents=True, exist_ok=True)
        self._passwords_file.write_text(json.dumps({name: name for name in self.users}))
        self.run_command("db", "migrate")
        for part in _PARTS:
            self.start_part(part)
        self._wait_until_healthy(time.monotonic() + within_s)
        return self

    def stop(self) -> None:
        """End every process of this Airflow, and of the tasks that it runs."""
        self._group.end()
        self._parts.clear()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *error: object) -> None:
        self.stop()

    def run_command(self, *arguments: str, within_s: float = 120.0) -> str:
        """Run an `airflow` command in this installation; return its output. Raises AirflowFailed."""
        done = run_to_end([str(self.program), *arguments], environment=self.environment(), within_s=within_s)
        if done.returncode:
            raise AirflowFailed(f"`airflow {' '.join(arguments)}` failed: {(done.stderr or done.stdout)[-2000:]}")
        return done.stdout

    def start_part(self, part: str) -> int:
        """Start one of api-server, scheduler, dag-processor, triggerer; return its process id."""
        log = self.home / f"{part}.log"
        environment = {**self.environment(), **self._part_extra.get(part, {})}
        self._parts[part] = self._group.spawn([str(self.program), *_PARTS[part]], env=environment, log=log)
        return self._parts[part].pid

    def signal_part(self, part: str, number: signal.Signals) -> None:
        """Send a signal to one part's main process: SIGKILL, SIGSTOP, SIGCONT, SIGTERM."""
        os.kill(self._parts[part].pid, number)

    def part_log(self, part: str) -> str:
        """Return the output of one part."""
        return (self.home / f"{part}.log").read_text(errors="replace")

    def reread_dags(self) -> None:
        """Make the dag-processor parse all DAG files again: Airflow starts the watches of unpaused DAGs then.

        It detects a changed file after 2 s, and parses unchanged ones every 30 s: a shorter interval would use half a
        core.
        """
        for path in self.dags.glob("*.py"):
            path.touch()

    def call_api(self, method: str, path: str, body: Any = None, *, user: str = "admin") -> Any:
        """Call the REST API, e.g. `call_api("GET", "/api/v2/dags")`. Raises AirflowFailed with the server's answer.

        With SQLite, one of two concurrent changes may wait until it times out; such a call is retried. A read that was
        not answered is sent once more: a machine that starts much at once may not run the api-server for long.
        """
        headers = {"Authorization": f"Bearer {self._access_token(user)}"}
        if method == "GET":
            with suppress(AirflowSilent):
                return self._retry_while_busy(method, path, body, headers)
        return self._retry_while_busy(method, path, body, headers)

    def environment(self) -> dict[str, str]:
        """Return the environment of its processes, without the variables of any other Airflow."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        connections = {f"AIRFLOW_CONN_{name.upper()}": json.dumps(value) for name, value in self._connections.items()}
        return {**inherited, **self._configuration(), **connections, **self._extra}

    def _configuration(self) -> dict[str, str]:
        options = {
            "CORE__DAGS_FOLDER": str(self.dags),
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__FERNET_KEY": self._fernet,
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__PARALLELISM": "4",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self._passwords_file),
            "CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in self.users.items()),
            "API__BASE_URL": self.url,
            "API__HOST": "127.0.0.1",
            "API__PORT": str(self._port),
            "API__SECRET_KEY": self._keys["api"],
            "API__WORKERS": "1",
            "API_AUTH__JWT_SECRET": self._keys["jwt"],
            "DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
            "DAG_PROCESSOR__REFRESH_INTERVAL": "2",
            "DATABASE__SQL_ALCHEMY_CONN": self._database,
        }
        if self._database.startswith("postgresql+psycopg:"):
            # Airflow would require asyncpg; psycopg supports both modes.
            options["DATABASE__SQL_ALCHEMY_CONN_ASYNC"] = self._database
        return {"AIRFLOW_HOME": str(self.home), **{f"AIRFLOW__{name}": value for name, value in options.items()}}

    @property
    def _passwords_file(self) -> Path:
        return self.home / "passwords.json"

    def _wait_until_healthy(self, deadline: float) -> None:
        while not self._is_healthy():
            dead = next((name for name, process in self._parts.items() if process.poll() is not None), None)
            if dead or time.monotonic() > deadline:
                what = f"its {dead} ended" if dead else "it was not healthy in time"
                part = dead or "api-server"
                end = f"The end of {part}.log: {self.part_log(part)[-1500:]}"
                raise AirflowFailed(f"Airflow did not start in {self.home}: {what}. {end}")
            time.sleep(0.5)
        # At the first request to the API of the tasks, the api-server builds every version of it, for some seconds of a
        # processor, and answers nobody else. On a busy machine, the client of a task would give up before that.
        left_s = max(deadline - time.monotonic(), _ANSWER_S)
        self._send_request("GET", "/execution/health", None, {}, timeout_s=left_s)

    def _is_healthy(self) -> bool:
        try:
            health = self._send_request("GET", "/api/v2/monitor/health", None, {})
        except AirflowFailed:
            return False
        parts = ("metadatabase", "scheduler", "triggerer", "dag_processor")
        return all(health.get(part, {}).get("status") == "healthy" for part in parts)

    def _access_token(self, user: str) -> str:
        if user not in self._tokens:
            answer = self._send_request("POST", "/auth/token", {"username": user, "password": user}, {})
            self._tokens[user] = answer["access_token"]
        return self._tokens[user]

    def _retry_while_busy(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Any:
        for _ in range(_BUSY_TRIES):
            with suppress(AirflowBusy):
                return self._send_request(method, path, body, headers)
            time.sleep(_BUSY_PAUSE_S)
        return self._send_request(method, path, body, headers)

    def _send_request(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], *, timeout_s: float = _ANSWER_S
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": "application/json", **headers}, method=method)  # noqa: S310 - http on 127.0.0.1
        try:
            with urlopen(request, timeout=timeout_s) as answer:  # noqa: S310 - http on 127.0.0.1
                text = answer.read().decode()
        except HTTPError as error:
            text = error.read().decode()[:500]
            failed = AirflowBusy if error.code == 500 and _BUSY in text else AirflowFailed
            raise failed(f"{method} {path} answered {error.code}: {text}") from error
        except (URLError, OSError) as error:
            raise AirflowSilent(f"{method} {path} was not answered: {error}") from error
        return json.loads(text) if text else None
