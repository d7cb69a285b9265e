"""The part of Kubernetes that Spark's driver uses, since no cluster can be had here: an API server for pods, with TLS.

It keeps the executor pods that Spark posts, and runs each as a process of this machine, as the entry point of Spark's
image would: so it stands for the kubelet too, and `image` is looked at by nobody.
"""

from __future__ import annotations

import json
import os
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from kafka_steward.sandbox.artifacts import find_or_install_java
from kafka_steward.sandbox.processes import Process
from tests.journal.certificate import Certificate
from tests.own_spark import SPARK

_EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
#: RFC 6455: part of what a server of WebSockets answers with.
_WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#: What the entry point of Spark's image makes of a pod's environment.
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


class KubernetesApi:
    """Its address, the requests that it got, and the pods that were posted; it answers 403 for kinds in `refused`."""

    def __init__(self, folder: Path, refused: tuple[str, ...] = ()) -> None:
        self.folder, self.refused = folder, refused
        self.certificate = Certificate(folder)
        self.token = "a-token"
        self.requests: list[str] = []
        self.strangers: list[str] = []
        self.pods: dict[str, dict[str, Any]] = {}
        self.processes: list[Process] = []
        self.address = ""

    def answer(self, method: str, target: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        """Return status and body for a request."""
        self.requests.append(f"{method} {target}")
        path = urlsplit(target).path
        kind = path.partition("/namespaces/")[2].split("/")[1:2]
        if kind and kind[0] in self.refused and method == "POST":
            return 403, _status(403, f"{kind[0]} is forbidden: User cannot create resource {kind[0]}")
        if method == "POST" and body is not None:
            return 201, self._create(kind[0], body)
        if method == "GET" and path.endswith("/pods"):
            return 200, {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": list(self.pods.values())}
        if method == "DELETE":
            return 200, _status(200, "deleted")
        return 404, _status(404, f"{path} is not played here")

    def _create(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        name = body["metadata"]["name"]
        body["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "1", "namespace": "planning"}
        if kind == "pods":
            self.pods[name] = body
            body["status"] = {"phase": "Running", "podIP": "127.0.0.1"}
            self._run(body)
        return body

    def _run(self, pod: dict[str, Any]) -> None:
        """Run the container of a pod, as Spark's image does for the argument `executor`."""
        folder = self.folder / pod["metadata"]["name"]
        folder.mkdir()
        env = container_environment(pod)
        options = [value for name, value in sorted(env.items()) if name.startswith("SPARK_JAVA_OPT_")]
        command = [str(find_or_install_java().executable), *options, f"-Xmx{env['SPARK_EXECUTOR_MEMORY']}"]
        command += ["-cp", str(SPARK / "jars/*"), _EXECUTOR]
        command += [part for option, name in _ARGUMENTS.items() for part in (option, env[name])]
        # A process has its working directory where a container has its own.
        shell = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(folder), *command]
        given = {**os.environ, **env, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder / "data")}
        self.processes.append(Process(folder.name, shell, log=folder / "log", environment=given))


def container_environment(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of the one container of a pod, as a kubelet resolves it."""
    (container,) = pod["spec"]["containers"]
    fields = {"status.podIP": "127.0.0.1", "metadata.name": pod["metadata"]["name"]}
    return {
        each["name"]: each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
        if each.get("value") or "valueFrom" in each
    }


def _status(code: int, message: str) -> dict[str, Any]:
    status = "Success" if code == 200 else "Failure"
    return {"apiVersion": "v1", "kind": "Status", "status": status, "code": code, "message": message}


def _handler(api: KubernetesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            if self.headers.get("Upgrade") == "websocket":
                self._watch()
                return
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            if self.headers.get("Authorization") != f"Bearer {api.token}":
                api.strangers.append(self.path)
            status, found = api.answer(self.command, self.path, body)
            content = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _watch(self) -> None:
            """Open a watch of pods, in which nothing happens until the client ends it."""
            api.requests.append(f"WATCH {self.path}")
            accepted = sha1(f"{self.headers['Sec-WebSocket-Key']}{_WEBSOCKET}".encode()).digest()  # noqa: S324
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", b64encode(accepted).decode())
            self.end_headers()
            self.rfile.read(1)
            self.close_connection = True

        do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = _serve  # noqa: N815 - the names of http.server

        def log_message(self, *_: Any) -> None: ...

    return Handler


@contextmanager
def run_kubernetes_api(folder: Path, refused: tuple[str, ...] = ()) -> Iterator[KubernetesApi]:
    """Run an API server on 127.0.0.1 for the block."""
    folder.mkdir(parents=True, exist_ok=True)
    api = KubernetesApi(folder, refused)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(api))
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(api.certificate.key_and_certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    api.address = f"https://127.0.0.1:{server.server_address[1]}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        for process in api.processes:
            process.terminate(within_s=5)
