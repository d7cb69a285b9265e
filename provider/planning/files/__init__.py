"""What is read and written: snapshots, plans, options, the files of Kafka's own tool; and where they lie."""
