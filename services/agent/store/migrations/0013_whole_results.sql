-- What is kept of a result that was too long to be shown whole: its text up to 1 MiB, how many
-- characters it had, and where it came from. It goes with its call.
ALTER TABLE tool_call
    ADD COLUMN whole text,
    ADD COLUMN whole_chars bigint,
    ADD COLUMN whole_source text,
    ADD CONSTRAINT tool_call_whole CHECK (
        octet_length(whole) <= 1048576 AND octet_length(whole_source) <= 4096) NOT VALID;
