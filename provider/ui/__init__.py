"""The page in Airflow's navigation: server-made HTML over the journal's SQL. It changes nothing itself."""
