-- +goose Up

-- A pool may have a budget of CPU, in thousandths of a core, so that a lane is also what its jobs declare of it. Jobs name
-- their lane by number: the numbers stay.
CREATE TABLE lease_lane_cpu (
    id           INTEGER PRIMARY KEY,
    workspace    TEXT    NOT NULL,
    pool         TEXT    NOT NULL,
    class        INTEGER NOT NULL, -- 0 interactive, 1 batch
    capabilities TEXT    NOT NULL, -- sorted, comma between
    os           TEXT    NOT NULL,
    arch         TEXT    NOT NULL,
    memory_mb    INTEGER NOT NULL,
    cpu          INTEGER NOT NULL,
    UNIQUE (workspace, pool, class, capabilities, os, arch, memory_mb, cpu)
);
INSERT INTO lease_lane_cpu SELECT id, workspace, pool, class, capabilities, os, arch, memory_mb, 0 FROM lease_lane;
DROP TABLE lease_lane;
ALTER TABLE lease_lane_cpu RENAME TO lease_lane;

-- +goose Down
CREATE TABLE lease_lane_memory (
    id           INTEGER PRIMARY KEY,
    workspace    TEXT    NOT NULL,
    pool         TEXT    NOT NULL,
    class        INTEGER NOT NULL,
    capabilities TEXT    NOT NULL,
    os           TEXT    NOT NULL,
    arch         TEXT    NOT NULL,
    memory_mb    INTEGER NOT NULL,
    UNIQUE (workspace, pool, class, capabilities, os, arch, memory_mb)
);
INSERT INTO lease_lane_memory SELECT min(id), workspace, pool, class, capabilities, os, arch, memory_mb FROM lease_lane
    GROUP BY workspace, pool, class, capabilities, os, arch, memory_mb;
UPDATE lease_job SET lane = (SELECT m.id FROM lease_lane l JOIN lease_lane_memory m USING (workspace, pool, class, capabilities, os, arch, memory_mb)
    WHERE l.id = lease_job.lane);
DROP TABLE lease_lane;
ALTER TABLE lease_lane_memory RENAME TO lease_lane;
