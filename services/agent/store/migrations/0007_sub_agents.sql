-- Agents that an agent may call as tools. They may be deleted, and change, on their own.
ALTER TABLE agent
    ADD COLUMN agent_ids uuid[] NOT NULL DEFAULT '{}' CHECK (cardinality(agent_ids) <= 16);
