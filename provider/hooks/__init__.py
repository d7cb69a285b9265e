"""The hook, and the parts that turn an Airflow connection into a cluster and a journal."""
