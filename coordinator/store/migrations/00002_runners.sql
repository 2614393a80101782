-- +goose Up

-- A revoked runner keeps its row, so that its machine is told "revoked" rather
-- than "unknown". Tokens are kept as SHA-256 in hex.
CREATE TABLE runners (
    id           TEXT PRIMARY KEY,
    workspace    TEXT NOT NULL,
    owner        TEXT NOT NULL,
    token_hash   TEXT NOT NULL UNIQUE,
    paired_at    INTEGER NOT NULL,
    last_seen_at INTEGER,
    revoked_at   INTEGER,
    document     BLOB NOT NULL -- protocol.Runner as last seen
) WITHOUT ROWID;

CREATE INDEX runners_workspace ON runners (workspace, paired_at) WHERE revoked_at IS NULL;

-- +goose Down
DROP TABLE runners;
