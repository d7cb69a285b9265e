"""Prometheus' own tools: those of the machine, or brought into the cache by apt and by Go."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from kafka_steward.cache import locked_cache

__all__ = ["promtool", "statsd_exporter"]

EXPORTER = "v0.28.0"


def promtool() -> str:
    """The path of promtool, which Debian's package prometheus holds."""
    found = shutil.which("promtool")
    if found:
        return found
    with locked_cache("promtool") as cache:
        folder = cache / "promtool"
        if not folder.exists():
            assert shutil.which("apt-get"), "No promtool: install Prometheus (Debian's package prometheus)."
            partial = _empty(folder)
            subprocess.run(["apt-get", "download", "prometheus"], cwd=partial, check=True, timeout=300)
            (package,) = partial.glob("*.deb")
            subprocess.run(["dpkg", "-x", package.name, "."], cwd=partial, check=True, timeout=120)
            package.unlink()
            partial.rename(folder)
    return str(folder / "usr" / "bin" / "promtool")


def statsd_exporter() -> str:
    """The path of statsd_exporter, built by Go at the first call."""
    found = shutil.which("statsd_exporter") or shutil.which("prometheus-statsd-exporter")
    if found:
        return found
    with locked_cache("statsd_exporter") as cache:
        folder = cache / f"statsd_exporter-{EXPORTER}"
        if not folder.exists():
            assert shutil.which("go"), "No statsd_exporter: install it, or Go, which builds it."
            partial = _empty(folder)
            environment = {**os.environ, "GOBIN": str(partial), "GOFLAGS": "-mod=mod"}
            command = ["go", "install", f"github.com/prometheus/statsd_exporter@{EXPORTER}"]
            subprocess.run(command, cwd=partial, env=environment, check=True, timeout=900)
            partial.rename(folder)
    return str(folder / "statsd_exporter")


def _empty(folder: Path) -> Path:
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    return partial
