// Package local launches units on the coordinator's own machine, as processes of its user.
// It is a cluster of one node, and what other clusters have a daemon for each unit has a
// keeper: a process that runs the unit's runner and stays until that has ended.
//
//	coordinator ──starts──► keeper ──starts──► runner ──starts──► the job
//
// The keeper is in a session of its own, so that a coordinator that ends takes nothing
// with it. It holds the runner to the order's deadline, keeps a bounded end of what it
// prints, ends whatever the runner has left, and writes down how it ended. A keeper that is
// killed takes its runner along.
//
// # What is on the disk
//
// A unit is a directory, and its state follows from what is in it. So a coordinator that
// is back sees what was there before, and nothing else:
//
//	unit.json    what it is for; the directory comes into being with it
//	token        with which its runner joins
//	payload.json in its place: what its runner is given, and removes
//	start.json   how it is started; without it the launch is not complete
//	lock         held by the keeper and the runner as long as one of them lives
//	keeper.json  which process the keeper is: a unit that has it is not started again
//	exit.json    how the runner ended
//	gone         it was terminated: removed when nothing of it runs
//	out, log     the end of what the runner printed and logged; out.1, log.1 what was before
//
// A process is signalled only while the lock is held, and only if it is the one that
// keeper.json names by number, start time and boot of the machine.
//
// # Who waits
//
// A unit that declares more memory, CPU or GPUs than the machine has left, with what its
// other units declare, is pending and says so. Units are started in the order in which
// they were launched, past those that do not fit.
package local
