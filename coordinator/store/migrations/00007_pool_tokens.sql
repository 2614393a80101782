-- +goose Up

-- A token with which machines join the pool of a runtime. A revoked one keeps its
-- row, so that a machine is told "revoked" rather than "unknown".
CREATE TABLE pool_tokens (
    id         TEXT PRIMARY KEY,
    workspace  TEXT NOT NULL,
    runtime    TEXT NOT NULL,
    hash       TEXT NOT NULL UNIQUE, -- SHA-256 in hex
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    revoked_at INTEGER,
    document   BLOB NOT NULL -- protocol.PoolToken
) WITHOUT ROWID;

CREATE INDEX pool_tokens_workspace ON pool_tokens (workspace, created_at) WHERE revoked_at IS NULL;

-- Runners that joined with a pool token come and go. gone_at is since when one is
-- not shown any more; its row stays a while longer, because it may be back with
-- evidence of its own.
ALTER TABLE runners ADD COLUMN pool_token TEXT;
ALTER TABLE runners ADD COLUMN gone_at INTEGER;

DROP INDEX runners_workspace;
CREATE INDEX runners_workspace ON runners (workspace, paired_at) WHERE revoked_at IS NULL AND gone_at IS NULL;
CREATE INDEX runners_pool_token ON runners (pool_token) WHERE pool_token IS NOT NULL;
CREATE INDEX runners_pool_present ON runners (last_seen_at) WHERE pool_token IS NOT NULL AND gone_at IS NULL;
CREATE INDEX runners_gone ON runners (gone_at) WHERE gone_at IS NOT NULL;

-- +goose Down
DROP INDEX runners_gone;
DROP INDEX runners_pool_present;
DROP INDEX runners_pool_token;
DROP INDEX runners_workspace;
ALTER TABLE runners DROP COLUMN gone_at;
ALTER TABLE runners DROP COLUMN pool_token;
CREATE INDEX runners_workspace ON runners (workspace, paired_at) WHERE revoked_at IS NULL;
DROP TABLE pool_tokens;
