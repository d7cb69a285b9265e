#!/usr/bin/env bash
# Seen with Apache Kafka 4.2.1 and 4.3.1 (KRaft): a reassignment from [1,2] to [3,2] is in flight, and is taken back by a reassignment to
# [1,2], as kafka-reassign-partitions does with the file of the current assignment. Kafka 4.2.1 (and 3.9.2, 4.1.2) ends it at once. Kafka
# 4.3.1 accepts it too, and goes on listing the partition as being reassigned, with broker 3 both added and removed, without an end: only a
# cancel ends that. So a tool that takes back by the originals alone waits for ever. Three brokers; Java 17 on the PATH; two minutes.
set -euo pipefail
place=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait || true; rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
timeout 300 "$place/venv/bin/pip" install --quiet --disable-pip-version-check kafka-python==3.0.12 jgo==3.2.0
cat > "$place/jars.py" <<'PYTHON'
import os, pathlib, sys

from jgo.maven import MavenContext, Model

mirror = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
maven = MavenContext(
    repo_cache=pathlib.Path(sys.argv[1]), remote_repos={"mirror": mirror.rstrip("/")} if mirror else None, timeout=60
)
kafka = maven.project("org.apache.kafka", "kafka_2.13").at_version(sys.argv[2])
found, _ = Model(kafka.pom(), maven).dependencies()
jars = [kafka.artifact().resolve(), *(each.artifact.resolve() for each in found if each.scope in ("compile", "runtime"))]
print(":".join(map(str, jars)))
PYTHON
cat > "$place/measure.py" <<'PYTHON'
import sys, time

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

version, bootstrap = sys.argv[1], [f"127.0.0.1:{port}" for port in sys.argv[2:]]
NAME = TopicPartition("t", 0)
RATE, LIST = (f"follower.replication.throttled.{key}" for key in ("rate", "replicas"))


def connected():
    for _ in range(60):
        try:
            admin = KafkaAdminClient(bootstrap_servers=bootstrap)
            admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "3")])
            return admin
        except KafkaError:
            pass
        time.sleep(1)
    sys.exit("the brokers did not start")


def in_flight():
    """Return the added and removed brokers of the partition's reassignment; None if there is none."""
    found = admin.list_partition_reassignments().get(NAME)
    return found and {key: sorted(found[key]) for key in ("adding_replicas", "removing_replicas")}


admin = connected()
admin.create_topics({"t": {"assignments": {0: [1, 2]}, "configs": {LIST: "*"}}})
producer = KafkaProducer(bootstrap_servers=bootstrap, batch_size=500_000, acks="all")
for _ in range(100):
    producer.send("t", bytes(100_000), partition=0)
producer.flush()
producer.close()
admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "3", configs={RATE: "1000"})], raise_on_unknown=False)
admin.alter_partition_reassignments({NAME: [3, 2]})
print(f"Kafka {version}: to [3,2], with 10 MB to copy at 1 kB/s: {in_flight()}")
admin.alter_partition_reassignments({NAME: [1, 2]})
for _ in range(20):
    time.sleep(1)
    left = in_flight()
    if left is None:
        break
print(f"Kafka {version}: taken back to [1,2], after 20 s at most: {left}")
if left:
    admin.alter_partition_reassignments({NAME: None})
    time.sleep(3)
    print(f"Kafka {version}: 3 s after a cancel: {in_flight()}")
stays = {"adding_replicas": [3], "removing_replicas": [3]}
sys.exit(left != (stays if version == "4.3.1" else None) or in_flight() is not None)
PYTHON
for version in 4.2.1 4.3.1; do
    jars=$(timeout 400 "$place/venv/bin/python" "$place/jars.py" "$place/maven" "$version")
    read -r one two three controller < <(python3 -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*(each.getsockname()[1] for each in held))')
    ports=("" "$one" "$two" "$three")
    for node in 1 2 3; do
        roles=broker; listeners="BROKER://127.0.0.1:${ports[$node]}"
        if [ "$node" = 1 ]; then roles=broker,controller; listeners="$listeners,CONTROLLER://127.0.0.1:$controller"; fi
        cat > "$place/$node.properties" <<PROPERTIES
node.id=$node
process.roles=$roles
listeners=$listeners
advertised.listeners=BROKER://127.0.0.1:${ports[$node]}
controller.listener.names=CONTROLLER
inter.broker.listener.name=BROKER
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.voters=1@127.0.0.1:$controller
log.dirs=$place/logs-$version-$node
offsets.topic.replication.factor=1
PROPERTIES
        java -Xmx256m -cp "$jars" kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAA -c "$place/$node.properties" > "$place/$node.format" 2>&1
        timeout 200 java -Xmx384m -cp "$jars" kafka.Kafka "$place/$node.properties" > "$place/$node.out" 2>&1 &
    done
    timeout 150 "$place/venv/bin/python" "$place/measure.py" "$version" "$one" "$two" "$three"
    kill $(jobs -p); wait || true
done
