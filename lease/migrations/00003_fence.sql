-- +goose Up

-- 1: leased to a runner that is not trusted any more.
ALTER TABLE lease_job ADD COLUMN fenced INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE lease_job DROP COLUMN fenced;
