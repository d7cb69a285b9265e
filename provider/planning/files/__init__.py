"""The planner's files: snapshots, plans, options, and the files of `kafka-reassign-partitions`; and their storage."""
