-- How much of what a run's model read was read before, how much of what it wrote were thoughts, and
-- what all that costs, in billionths of a unit of the currency; no cost where no price was known.
ALTER TABLE run
    ADD COLUMN cached_input_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN reasoning_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN cost_currency text,
    ADD COLUMN cost_nanos bigint,
    ADD COLUMN sub_cached_input_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN sub_reasoning_tokens bigint NOT NULL DEFAULT 0,
    ADD COLUMN sub_cost_currency text,
    ADD COLUMN sub_cost_nanos bigint;
