// Package lease is a durable queue of jobs that runners pull under leases. It knows no HTTP and no agent, and is usable by
// itself.
package lease
