-- What stands around an agent's steps, as the contract has it: at most 16, each with its configuration.
-- A run that goes on keeps the settings that it was first taken with, which name none;
-- the default is for services that have not been replaced yet.
ALTER TABLE agent
    ADD COLUMN hooks jsonb NOT NULL DEFAULT '[]' CHECK (octet_length(hooks::text) <= 1048576);
