// Package nomad holds the tests of the fleet on Nomad. They run against the stand-in of
// a cluster in the package beside, or against a real one on this machine:
//
//	NOMAD_ADDR=http://127.0.0.1:4646 NOMAD_TOKEN=... make test-nomad
//
// Tests whose names begin with TestStandin make the cluster do what no real one does
// when it is asked, and are no part of that. A real one has to have the docker driver on
// this machine's engine, raw_exec, ACLs, and a client that is in no container.
package nomad
