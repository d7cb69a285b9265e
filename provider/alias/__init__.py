"""The name of the distribution as a package, for DAG files: `from airflow_provider_kafka_steward.dags import heal`.

Airflow reads a DAG file only if it contains the words "airflow" and "dag" (`[core] dag_discovery_safe_mode`). A file
that imports a workflow under this name does. All else is in the package `kafka_steward`.
"""
