"""Cancel or roll back a plan to the end, and verify that the partitions are as they were before (KIP-236)."""
