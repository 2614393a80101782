-- +goose Up

-- One row, written by readiness checks: proof that the writer lives and that the
-- disk takes a commit.
CREATE TABLE probe (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    at INTEGER NOT NULL
);

-- +goose Down
DROP TABLE probe;
