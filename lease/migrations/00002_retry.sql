-- +goose Up

-- A job whose attempt failed in a way that a retry can help waits in state 4 until retry_at, and is then queued (state 0)
-- again. So the indexes of the queued jobs, and the heads of the lanes, have only what can be leased.
ALTER TABLE lease_job ADD COLUMN retry_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX lease_job_delayed ON lease_job (retry_at, lane) WHERE state = 4;

-- +goose Down
UPDATE lease_job SET state = 0 WHERE state = 4;
DROP INDEX lease_job_delayed;
ALTER TABLE lease_job DROP COLUMN retry_at;
