-- Where users are, by an IANA name; empty leaves it to the agent, and then to UTC.
ALTER TABLE agent
    ADD COLUMN time_zone text NOT NULL DEFAULT '',
    ADD CONSTRAINT agent_time_zone CHECK (octet_length(time_zone) <= 64) NOT VALID;
ALTER TABLE chat_session
    ADD COLUMN time_zone text NOT NULL DEFAULT '',
    ADD CONSTRAINT chat_session_time_zone CHECK (octet_length(time_zone) <= 64) NOT VALID;
