"""The checks of `airflow kafka-steward doctor` that need no Airflow: each returns findings, and changes nothing."""
