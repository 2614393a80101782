// Package store keeps the coordinator's records in SQLite: runs with their
// events and attempts, runners, API keys and registered definitions. Besides
// lease it is the only package that speaks SQL; the two share one file and one
// writer, so that a run's record and its job are one transaction.
//
// Functions that take a *sqlite.Tx run inside the caller's transaction and are
// durable when it is. Methods on Store that take a context read from the pool of
// readers, or write in a transaction of their own and return when that has
// reached the disk.
//
// A row that does not exist, or belongs to another workspace, is ErrNotFound;
// both look the same so that nothing leaks.
package store
