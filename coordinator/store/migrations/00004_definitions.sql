-- +goose Up

-- Versioned, immutable things that users register: harnesses and their
-- templates. body never changes; deleted_at makes a version invisible.
CREATE TABLE definitions (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    collection TEXT NOT NULL,
    workspace  TEXT NOT NULL,
    id         TEXT NOT NULL,
    version    TEXT NOT NULL,
    form       TEXT NOT NULL,
    body       BLOB NOT NULL,
    digest     TEXT NOT NULL, -- SHA-256 of body in hex
    tags       BLOB NOT NULL, -- JSON array
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    deleted_at INTEGER,
    UNIQUE (collection, workspace, id, version)
);

-- +goose Down
DROP TABLE definitions;
