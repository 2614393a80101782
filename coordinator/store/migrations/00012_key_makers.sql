-- +goose Up

ALTER TABLE api_keys ADD COLUMN created_by TEXT NOT NULL DEFAULT ''; -- who made it, if not its subject

CREATE INDEX api_keys_workspace ON api_keys (workspace, created_at);

-- +goose Down
DROP INDEX api_keys_workspace;
ALTER TABLE api_keys DROP COLUMN created_by;
