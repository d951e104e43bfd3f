-- Whoever looks for a run by its id also asks whether it is held. If no runs were held when the
-- table was last analysed, the planner took an index of the held ones to be empty, and so to be the
-- quickest way to the run: it read all that were held by then. Now a statement is given such an
-- index only if it names its condition, and the two have different ones.

DROP INDEX run_held_once_per_session;
CREATE UNIQUE INDEX run_held_once_per_session ON run (session_id) WHERE num_nulls(lease_until) = 0;
DROP INDEX run_lease;
CREATE INDEX run_lease ON run (lease_until) WHERE num_nonnulls(lease_until) = 1;
