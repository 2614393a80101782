-- +goose Up

-- How runs ended, by workspace and hour: what the last day looked like costs a few
-- rows, however many runs there were. A number that a run did not know is not in a
-- sum; usd_runs and tokens_runs count those that knew.
CREATE TABLE run_outcomes (
    workspace   TEXT NOT NULL,
    hour        INTEGER NOT NULL, -- its first millisecond since the epoch
    outcome     TEXT NOT NULL,
    runs        INTEGER NOT NULL,
    usd         REAL NOT NULL,
    usd_runs    INTEGER NOT NULL,
    tokens      INTEGER NOT NULL,
    tokens_runs INTEGER NOT NULL,
    PRIMARY KEY (workspace, hour, outcome)
) WITHOUT ROWID;

-- Of the last day, what ended before this table was there. seq is milliseconds shifted
-- by 20 bits.
INSERT INTO run_outcomes
SELECT workspace, updated_at - updated_at % 3600000,
    CASE WHEN status = 'succeeded' AND verdict = 1 THEN 'passed'
        WHEN status = 'succeeded' AND verdict = 0 THEN 'failed'
        WHEN status = 'succeeded' THEN 'ungraded'
        WHEN json_extract(CAST(record AS TEXT), '$.error.code') = 'CANCELLED' THEN 'cancelled'
        ELSE 'failure:' || COALESCE(failure_class, 'infra') END AS outcome,
    COUNT(*),
    COALESCE(SUM(json_extract(CAST(record AS TEXT), '$.usage.usd')), 0.0),
    COUNT(json_extract(CAST(record AS TEXT), '$.usage.usd')),
    COALESCE(SUM(json_extract(CAST(record AS TEXT), '$.usage.totalTokens')), 0),
    COUNT(json_extract(CAST(record AS TEXT), '$.usage.totalTokens'))
FROM runs
WHERE seq >= (unixepoch() - 172800) * 1000 << 20 AND status IN ('succeeded', 'failed')
GROUP BY 1, 2, 3;

CREATE INDEX runs_class ON runs (workspace, class);

-- +goose Down
DROP INDEX runs_class;
DROP TABLE run_outcomes;
