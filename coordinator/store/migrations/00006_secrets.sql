-- +goose Up

-- Values are sealed before they come here: sealed by a data key of the row's
-- own, data_key by the key that key_id names. Both are bound to the row's primary
-- key, so that neither opens in another row.
CREATE TABLE secrets (
    workspace  TEXT NOT NULL,
    scope      TEXT NOT NULL CHECK (scope IN ('workspace', 'user')),
    owner      TEXT NOT NULL, -- the subject of a user's secret; empty: the workspace's
    name       TEXT NOT NULL,
    key_id     TEXT NOT NULL,
    data_key   BLOB NOT NULL,
    sealed     BLOB NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (workspace, scope, owner, name)
);

-- +goose Down
DROP TABLE secrets;
