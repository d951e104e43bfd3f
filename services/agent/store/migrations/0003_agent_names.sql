-- For lists narrowed to one name.
CREATE INDEX agent_of_name ON agent (tenant, display_name, id);
