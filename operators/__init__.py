"""What a DAG does."""
