-- no transaction
CREATE INDEX CONCURRENTLY chat_session_own_of_agent ON chat_session (tenant, user_id, agent_id, id)
    WHERE parent_run_id IS NULL;
