"""Make the lock of a Kafka version: `python -m tests.sandbox.kafka_lock 4.3.1 > provider/sandbox/kafka-4.3.1.lock`.

It resolves the dependencies as Maven does, in Maven Central, and prints a line for each jar. What it prints is trusted
from then on: compare it with the lock of the version before.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

from jgo.maven import MavenContext

#: The logging binding that Kafka's own dependencies lack, by the major version of Kafka.
_LOGGING = {
    "3": ("ch.qos.reload4j:reload4j:1.2.25", "org.slf4j:slf4j-reload4j:1.7.36"),
    "4": ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",),
}
#: The same for all versions.
_SCALA = "org.scala-lang:scala-library:2.13.18"
#: Dependencies of the command-line tools for Connect, which no sandbox runs.
_EXCLUDED = (
    "org.apache.kafka:connect-api",
    "org.apache.kafka:connect-json",
    "org.apache.kafka:connect-runtime",
    "org.apache.kafka:kafka-log4j-appender",
    "com.fasterxml.jackson.jakarta.rs:jackson-jakarta-rs-json-provider",
    "com.fasterxml.jackson.jaxrs:jackson-jaxrs-json-provider",
)


def lock_text(version: str) -> str:
    """Return the lock of a Kafka version; download its jars to compute their SHA-256."""
    wanted = [f"org.apache.kafka:kafka_2.13:{version}", f"org.apache.kafka:kafka-tools:{version}", _SCALA]
    with tempfile.TemporaryDirectory() as folder:
        maven = MavenContext(repo_cache=Path(folder), timeout=20)
        excluded = [maven.project(*pair.split(":")) for pair in _EXCLUDED]
        # "!": a coordinate whose POM does not decide the versions of other coordinates, as log4j's would Kafka's.
        roots = [maven.create_dependency(f"{coordinate}!", excluded) for coordinate in (*wanted, *_LOGGING[version[0]])]
        resolved, dependencies = maven.resolver.resolve(roots)
        jars = {
            f"{one.groupId}:{one.artifactId}:{one.version}": one.artifact.resolve().read_bytes()
            for one in (*resolved, *dependencies)
        }
    return "".join(f"{hashlib.sha256(jar).hexdigest()}  {coordinate}\n" for coordinate, jar in sorted(jars.items()))


if __name__ == "__main__":
    sys.stdout.write(lock_text(sys.argv[1]))
