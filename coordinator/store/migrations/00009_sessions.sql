-- +goose Up

-- Who signed in with a browser: the hash of what its cookie holds, and the API key
-- that the session acts for. It ends with that key.
CREATE TABLE sessions (
    hash       TEXT PRIMARY KEY, -- SHA-256 in hex
    key_id     TEXT NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL, -- milliseconds since the epoch
    seen_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX sessions_key ON sessions (key_id);
CREATE INDEX sessions_expiry ON sessions (expires_at);

-- +goose Down
DROP TABLE sessions;
