-- A user that may read what the dashboard of the journal shows, and nothing else. Run it as the owner of the tables, in
-- their database; with a schema of their own, also: GRANT USAGE ON SCHEMA steward TO grafana_reader;
CREATE ROLE grafana_reader LOGIN;
GRANT SELECT ON steward_health, steward_plan, steward_plan_move, steward_progress, steward_watch_check, steward_audit,
    steward_state TO grafana_reader;
ALTER ROLE grafana_reader SET default_transaction_read_only = on;
ALTER ROLE grafana_reader SET statement_timeout = '30s';
