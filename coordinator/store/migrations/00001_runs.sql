-- +goose Up

-- seq orders runs by the moment they were accepted: milliseconds since the epoch
-- shifted left by 20 bits, plus a counter (see nextSeq). Every index ends in it,
-- so that a page of any filter is a range of one index, already in order.
CREATE TABLE runs (
    seq             INTEGER PRIMARY KEY,
    id              TEXT NOT NULL UNIQUE,
    workspace       TEXT NOT NULL,
    status          TEXT NOT NULL,
    class           TEXT NOT NULL,
    harness_id      TEXT NOT NULL,
    harness_version TEXT NOT NULL,
    runtime         TEXT NOT NULL,
    runner          TEXT,
    cause           TEXT,
    trigger_label   TEXT,
    verdict         INTEGER,
    failure_class   TEXT,
    created_at      INTEGER NOT NULL, -- milliseconds since the epoch
    updated_at      INTEGER NOT NULL,
    record          BLOB NOT NULL     -- protocol.Run without result and case
);

CREATE INDEX runs_workspace ON runs (workspace);
CREATE INDEX runs_status ON runs (workspace, status);
CREATE INDEX runs_harness ON runs (workspace, harness_id);
CREATE INDEX runs_runtime ON runs (workspace, runtime);
-- Partial: a submitted run has none of these yet, and pays for none of them.
CREATE INDEX runs_runner ON runs (workspace, runner) WHERE runner IS NOT NULL;
CREATE INDEX runs_cause ON runs (workspace, cause) WHERE cause IS NOT NULL;
CREATE INDEX runs_trigger ON runs (workspace, trigger_label) WHERE trigger_label IS NOT NULL;
CREATE INDEX runs_verdict ON runs (workspace, verdict) WHERE verdict IS NOT NULL;
CREATE INDEX runs_failure ON runs (workspace, failure_class) WHERE failure_class IS NOT NULL;

-- What a run carries out: written once, read with one run, never rewritten when
-- its record changes.
CREATE TABLE run_specs (
    seq  INTEGER PRIMARY KEY REFERENCES runs (seq),
    spec BLOB NOT NULL
);

CREATE TABLE run_events (
    run_seq INTEGER NOT NULL REFERENCES runs (seq),
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    runner  TEXT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (run_seq, seq)
) WITHOUT ROWID;

CREATE TABLE run_attempts (
    run_seq  INTEGER NOT NULL REFERENCES runs (seq),
    attempt  INTEGER NOT NULL,
    document BLOB NOT NULL, -- protocol.Attempt without result
    result   BLOB,          -- protocol.CaseResult
    PRIMARY KEY (run_seq, attempt)
);

-- +goose Down
DROP TABLE run_attempts;
DROP TABLE run_events;
DROP TABLE run_specs;
DROP TABLE runs;
