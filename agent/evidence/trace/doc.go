// Package trace records what an agent did as JSON lines of protocol.TraceEvent
// and reads such lines back. A Recorder keeps memory flat: it writes each event
// as it comes and holds only the aggregates that graders and the run's record
// need. Past its limits a field or the rest of the trace is missing, after a failed
// write an event, and the trace says so.
package trace
