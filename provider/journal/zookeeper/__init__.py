"""The journal's mailbox in ZooKeeper."""
