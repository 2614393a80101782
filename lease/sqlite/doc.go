// Package sqlite holds the one SQLite file of a coordinator and its one writer.
//
// Every change goes through one connection that one goroutine owns. Callers hand it functions; it runs as many as are
// waiting (up to [Config.MaxGroup]) inside one BEGIN IMMEDIATE ... COMMIT and tells nobody anything before the commit
// has reached the disk (WAL, synchronous=FULL). So concurrent callers share an fsync, no statement ever meets
// SQLITE_BUSY, and nothing reads in one transaction what it writes in the next.
//
// Three kinds of work share a group:
//
//   - [DB.Write] runs a caller's function inside a savepoint: if it fails, its own changes are undone and its neighbours
//     in the group are not touched.
//   - [DB.Apply] runs a function without a savepoint, for components that write only after they have checked everything.
//   - A [Participant] is asked once at the end of every group, in the same transaction, and is told how it ended. The
//     lease queue is one: it owns memory that only the writer's goroutine touches, leases to waiting runners in the very
//     commit that enqueues, and rebuilds its memory when a commit fails.
//
// When a commit fails (a full disk), the whole group is rolled back and each of its callers gets the error.
//
// Reads that need no writer use [DB.Reader], a pool of read-only connections, each seeing the last commit.
//
// Constraints must be immediate: a deferred foreign key fails at COMMIT and so would fail a whole group.
//
// A lock file beside the database keeps a second process out; see [HeldError].
package sqlite
