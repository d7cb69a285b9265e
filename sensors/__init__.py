"""What a DAG waits for."""
