-- +goose Up

-- A lane is everything about a job that decides where and in which class it runs. Jobs name theirs by number, so that the
-- queue matches one head per lane instead of every job.
CREATE TABLE lease_lane (
    id           INTEGER PRIMARY KEY,
    workspace    TEXT    NOT NULL,
    pool         TEXT    NOT NULL,
    class        INTEGER NOT NULL, -- 0 interactive, 1 batch
    capabilities TEXT    NOT NULL, -- sorted, comma between
    os           TEXT    NOT NULL,
    arch         TEXT    NOT NULL,
    memory_mb    INTEGER NOT NULL,
    UNIQUE (workspace, pool, class, capabilities, os, arch, memory_mb)
);

-- All times are nanoseconds since 1970 by the coordinator's clock. A lease's deadline is not here: a restarted coordinator
-- gives every live lease one fresh TTL, so no decision could use it, and a renewal needs no write.
CREATE TABLE lease_job (
    seq          INTEGER PRIMARY KEY, -- order of arrival; kept when a job returns to the queue
    id           TEXT    NOT NULL UNIQUE,
    lane         INTEGER NOT NULL,
    state        INTEGER NOT NULL,           -- 0 queued, 1 leased, 2 parked, 3 settled
    max_attempts INTEGER NOT NULL,
    wait         INTEGER NOT NULL,           -- how long it may be queued, ns
    enqueued_at  INTEGER NOT NULL,
    deadline_at  INTEGER NOT NULL,           -- of being queued
    attempt      INTEGER NOT NULL DEFAULT 0, -- the epoch: of the lease, or of the last one
    failures     INTEGER NOT NULL DEFAULT 0, -- attempts that count against max_attempts
    unstarted    INTEGER NOT NULL DEFAULT 0, -- leases that nobody acknowledged
    token        TEXT    NOT NULL DEFAULT '',
    runner       TEXT    NOT NULL DEFAULT '',
    home         TEXT    NOT NULL DEFAULT '',
    request      TEXT    NOT NULL DEFAULT '',
    leased_at    INTEGER NOT NULL DEFAULT 0,
    started_at   INTEGER NOT NULL DEFAULT 0, -- of the current attempt, 0 while not acknowledged
    held         INTEGER NOT NULL DEFAULT 0, -- 1: leased, and its process waits for a person
    stop         INTEGER NOT NULL DEFAULT 0, -- outcome that the holder was asked to end with, 0 none
    reason       TEXT    NOT NULL DEFAULT '', -- why it is parked, stopped or settled, in words
    outcome      INTEGER NOT NULL DEFAULT 0,
    settled_by   INTEGER NOT NULL DEFAULT 0, -- the attempt that settled it, 0 if the queue did
    settled_at   INTEGER NOT NULL DEFAULT 0
);

-- Partial: an index is as large as the state that it lists, and is used only by a query that repeats its predicate.
CREATE INDEX lease_job_queued   ON lease_job (lane, seq)    WHERE state = 0;
CREATE INDEX lease_job_deadline ON lease_job (deadline_at)  WHERE state = 0;
CREATE INDEX lease_job_leased   ON lease_job (state)        WHERE state = 1;
CREATE INDEX lease_job_parked   ON lease_job (lane)         WHERE state = 2;

-- Apart from the job, so that leasing and settling rewrite rows of a hundred bytes and not of kilobytes.
CREATE TABLE lease_payload (
    seq     INTEGER PRIMARY KEY,
    payload BLOB NOT NULL
);

-- +goose Down
DROP TABLE lease_payload;
DROP TABLE lease_job;
DROP TABLE lease_lane;
