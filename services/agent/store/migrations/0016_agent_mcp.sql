-- Which MCP servers an agent may use, and the digest of each tool as it was approved: at most 16
-- servers of 128 tools each, whose names take up to 128 bytes.

ALTER TABLE agent ADD COLUMN mcp_servers jsonb NOT NULL DEFAULT '[]'
    CHECK (octet_length(mcp_servers::text) <= 1048576);
