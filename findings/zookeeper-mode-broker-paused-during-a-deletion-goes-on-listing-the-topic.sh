#!/usr/bin/env bash
# Seen with Apache Kafka 3.9.1 in ZooKeeper mode (ZooKeeper 3.8.4): a broker that is paused (SIGSTOP) until its session ends, while a
# topic is deleted that has no replica on it, goes on listing the topic once it is continued: its Metadata has each partition, without an
# error, led and in sync as before (asked for 60 s, and nothing hints at an end), though the topic is gone from ZooKeeper, from
# /admin/delete_topics, and from the other brokers. A pause that is shorter than the session does not do this. So Metadata of one broker
# does not show that a topic exists, and two answers of a cluster may differ for good: ask the controller, or more than one broker.
# Each broker is asked over a connection of its own. Three brokers, 256 MB of heap each; needs Java 17 on the PATH; takes two minutes.
set -euo pipefail
place=$(mktemp -d)
trap 'kill -KILL $(cat "$place"/*.pid) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
timeout 300 "$place/venv/bin/pip" install --quiet --disable-pip-version-check jgo==3.2.0
cat > "$place/jars.py" <<'PYTHON'
import os, pathlib, sys

from jgo.maven import MavenContext, Model

mirror = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
maven = MavenContext(
    repo_cache=pathlib.Path(sys.argv[1]), remote_repos={"mirror": mirror.rstrip("/")} if mirror else None, timeout=60
)
jars = {}
for name in "kafka_2.13", "kafka-tools":
    kafka = maven.project("org.apache.kafka", name).at_version("3.9.1")
    found, _ = Model(kafka.pom(), maven).dependencies()
    kept = [each.artifact for each in found if each.scope in ("compile", "runtime")]
    for each in kafka.artifact(), *kept:
        jars.setdefault((each.groupId, each.artifactId), each)
print(":".join(str(each.resolve()) for each in jars.values()))
PYTHON
jars=$(timeout 400 "$place/venv/bin/python" "$place/jars.py" "$place/maven")
read -r zookeeper one two three < <(python3 -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*(each.getsockname()[1] for each in held))')
# Run java under a name, for 300 s at most, with its own process id in a file: it, not timeout, is what SIGSTOP must reach.
started() {
    name=$1; shift
    timeout -k 5 300 bash -c 'echo $$ > "$0"; exec java -XX:TieredStopAtLevel=1 "$@"' "$place/$name.pid" -cp "$jars" "$@" > "$place/$name.out" 2>&1 &
}
cat > "$place/zookeeper.properties" <<PROPERTIES
dataDir=$place/zookeeper
clientPort=$zookeeper
clientPortAddress=127.0.0.1
tickTime=1000
admin.enableServer=false
PROPERTIES
started zookeeper -Xmx128m org.apache.zookeeper.server.ZooKeeperServerMain "$place/zookeeper.properties"
cat > "$place/measure.py" <<'PYTHON'
import os, signal, socket, struct, subprocess, sys, time

place, jars, zookeeper, *ports = sys.argv[1:]
ports = dict(enumerate(ports, 1))


def java(*arguments):
    command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", jars, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def topics(node, *arguments):
    """Run Kafka's own kafka-topics with one broker as its bootstrap."""
    ran = java("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", f"127.0.0.1:{ports[node]}", *arguments)
    if ran.returncode:
        sys.exit(f"kafka-topics {arguments}: {ran.stdout} {ran.stderr}")


def kept(path):
    """Return what ZooKeeper has under a path."""
    return java("org.apache.zookeeper.ZooKeeperMain", "-server", f"127.0.0.1:{zookeeper}", "ls", path).stdout.split("\n")[-2]


def metadata(node):
    """Ask one broker, over a connection to it alone, for Metadata (version 1, all topics): its brokers, and its partitions."""
    with socket.create_connection(("127.0.0.1", int(ports[node])), timeout=5) as peer:
        asked = struct.pack(">hhihi", 3, 1, 7, -1, -1)
        peer.sendall(struct.pack(">i", len(asked)) + asked)
        answer = peer.makefile("rb")

        def number(kind):
            return struct.unpack(f">{kind}", answer.read(struct.calcsize(f">{kind}")))[0]

        def text():
            return answer.read(max(number("h"), 0)).decode()

        def numbers():
            return [number("i") for _ in range(number("i"))]

        number("i"), number("i")
        brokers = []
        for _ in range(number("i")):
            brokers.append(number("i"))
            text(), number("i"), text()
        number("i")  # the controller
        found = {}
        for _ in range(number("i")):
            number("h")
            name = text()
            number("?")
            for _ in range(number("i")):
                error, index, leader = number("h"), number("i"), number("i")
                found[name, index] = f"error {error}, leader {leader}, replicas {numbers()}, in sync {numbers()}"
        return sorted(brokers), found


def until(what, seconds, check):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            if check():
                return
        except (OSError, struct.error):
            pass
        time.sleep(0.5)
    sys.exit(f"not seen within {seconds} s: {what}")


def shown(nodes):
    for node in nodes:
        brokers, found = metadata(node)
        print(f"  broker {node}: brokers {brokers}, topics {found or 'none'}", flush=True)


def is_listed_by_three(topic, longer):
    """Delete a topic of brokers 1 and 2 while 3 is paused, for longer than its session or not; return whether 3 lists it for ever."""
    topics(1, "--create", "--topic", topic, "--replica-assignment", "1:2")
    until("the topic at each broker", 20, lambda: all((topic, 0) in metadata(node)[1] for node in ports))
    os.kill(paused, signal.SIGSTOP)
    began = time.monotonic()
    if longer:
        until("the end of the session of broker 3", 30, lambda: metadata(1)[0] == [1, 2])
    topics(1, "--delete", "--topic", topic)
    until("the topic gone from brokers 1 and 2", 20, lambda: not any((topic, 0) in metadata(node)[1] for node in (1, 2)))
    lasted = time.monotonic() - began
    os.kill(paused, signal.SIGCONT)
    print(f"{topic}: deleted while broker 3 was paused, for {lasted:.1f} s; session ended: {longer}", flush=True)
    until("three brokers again", 30, lambda: all(metadata(node)[0] == [1, 2, 3] for node in ports))
    for path in "/brokers/topics", "/admin/delete_topics":
        print(f"  ZooKeeper, {path}: {kept(path)}")
    ends = time.monotonic() + (60 if longer else 10)
    while (listed := (topic, 0) in metadata(3)[1]) and time.monotonic() < ends:
        time.sleep(1)
    shown(ports)
    return listed


until("three brokers", 60, lambda: all(metadata(node)[0] == [1, 2, 3] for node in ports))
paused = int(open(f"{place}/3.pid").read())
short = is_listed_by_three("short", False)
print(f"broker 3 lists it 10 s after it went on: {short}")
long = is_listed_by_three("long", True)
print(f"broker 3 lists it 60 s after it went on: {long}")
others = any(("long", 0) in metadata(node)[1] for node in (1, 2))
sys.exit((short, long, others) != (False, True, False))
PYTHON
for node in 1 2 3; do
    ports=("$one" "$two" "$three"); port=${ports[node - 1]}
    cat > "$place/$node.properties" <<PROPERTIES
broker.id=$node
zookeeper.connect=127.0.0.1:$zookeeper
zookeeper.session.timeout.ms=6000
listeners=PLAINTEXT://127.0.0.1:$port
log.dirs=$place/logs-$node
PROPERTIES
    started "$node" -Xmx256m kafka.Kafka "$place/$node.properties"
    # The first broker is the controller: it is not the one that will be paused.
    if [ "$node" = 1 ]; then timeout 60 bash -c "until (: < /dev/tcp/127.0.0.1/$port) 2> /dev/null; do sleep 0.5; done"; fi
done
echo "Kafka $(tr : "\n" <<< "$jars" | sed -n "s/.*kafka_2.13-\(.*\).jar/\1/p"), ZooKeeper $(tr : "\n" <<< "$jars" | sed -n "s/.*zookeeper-\([0-9].*\).jar/\1/p")"
timeout 140 python3 "$place/measure.py" "$place" "$jars" "$zookeeper" "$one" "$two" "$three"
