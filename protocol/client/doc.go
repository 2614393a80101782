// Package client is the Go client of Everdict's HTTP API: a typed method for
// each route, iterators over lists that page, and streams of a run's log, trace
// and life that reconnect and go on where they were cut.
//
// # Errors
//
// An answer of the server that is not a success is a *protocol.Problem whose
// Status is the HTTP status, also when something between the client and the
// coordinator answered (a proxy's HTML page). A server that gave no answer is an
// *UnreachableError. A cancelled context is the context's error, wrapped.
//
// # Retries
//
// A request is tried again, a bounded number of times and with full jitter, when
// doing so cannot do the work twice: any request whose connection was refused or
// that a coordinator answered 503 in a problem of its own (it does so before it
// accepts anything), and GET, PUT and DELETE also after 429, 502, 503, 504 and a
// broken connection. A 503 of a proxy says nothing of whether the request was
// carried out. A server's Retry-After is honoured. The body of a request is kept in
// memory, so it can be sent again whole.
package client
