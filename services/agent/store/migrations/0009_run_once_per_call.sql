-- no transaction
CREATE UNIQUE INDEX CONCURRENTLY run_once_per_call ON run (parent_run_id, parent_call_key)
    WHERE parent_run_id IS NOT NULL;
