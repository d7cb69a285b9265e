"""The journal's tree in ZooKeeper."""
