-- no transaction
CREATE INDEX CONCURRENTLY chat_session_own ON chat_session (tenant, user_id, id)
    WHERE parent_run_id IS NULL;
