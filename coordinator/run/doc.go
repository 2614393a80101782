// Package run is the life of a run from submit to settle, and the only package
// that ties the lease queue, the records and the evidence together. A record is
// never changed but in the transaction that changes its job, so that the two
// cannot tell different stories (P1, P2):
//
//	Submit    -> lease.Enqueue with the record's insertion
//	a change that the queue decides (expiry, deadline) -> the queue's hook
//	Started, Finish, GiveBack, Ask -> the operation's hook
//
// The gateway brings what runners say, the API what people ask.
package run
