-- +goose Up

-- A token with which one launched unit joins the pool of a runtime, for one job. It
-- is used once; a new one for the same unit replaces it.
CREATE TABLE join_tokens (
    unit       TEXT PRIMARY KEY,
    id         TEXT NOT NULL,
    workspace  TEXT NOT NULL,
    runtime    TEXT NOT NULL,
    job        TEXT NOT NULL,
    hash       TEXT NOT NULL UNIQUE, -- SHA-256 in hex
    expires_at INTEGER NOT NULL,
    used_at    INTEGER
) WITHOUT ROWID;

CREATE INDEX join_tokens_expiry ON join_tokens (expires_at);

-- Who this coordinator is to the clusters that it launches on: what carries another
-- name there is not its own.
CREATE TABLE identity (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    name TEXT NOT NULL
);

-- +goose Down
DROP TABLE identity;
DROP INDEX join_tokens_expiry;
DROP TABLE join_tokens;
