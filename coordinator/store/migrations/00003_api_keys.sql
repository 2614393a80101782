-- +goose Up

CREATE TABLE api_keys (
    id         TEXT PRIMARY KEY,
    workspace  TEXT NOT NULL,
    subject    TEXT NOT NULL, -- whose key it is; empty: a machine's
    role       TEXT NOT NULL,
    label      TEXT NOT NULL,
    prefix     TEXT NOT NULL, -- the first 12 characters, to recognise it by
    hash       TEXT NOT NULL UNIQUE, -- SHA-256 in hex
    scopes     TEXT NOT NULL, -- separated by commas
    created_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX api_keys_subject ON api_keys (workspace, subject, created_at);

-- +goose Down
DROP TABLE api_keys;
