// Package evidence stores what attempts produce: per attempt some channels of
// bytes (log, trace, diff, ...). The result is in the run's record.
//
// An attempt is one file, <dir>/<shard>/<run>.<epoch>.ev, to which pieces of all
// channels are appended as they come: a small run costs one new file, a handful
// of writes and one fsync, however many channels it has. Attempts of one run
// never share a file, so late evidence of a superseded attempt cannot touch that
// of its successor.
//
// What a return means:
//
//   - Append: the bytes were handed to the operating system. They survive a
//     kill of this process at any instruction, not a power cut. The offset may be
//     acknowledged: the runner keeps its copy until the result is acknowledged.
//   - Seal: everything before it is on the disk, with the names of the files.
//     Only after it may a result be acknowledged.
//
// Each piece carries a checksum seeded with a number that the file alone knows.
// A file that was cut short or torn is read up to its last whole piece; writing
// continues from there, and the runner, asked to resume from what is left, sends
// the rest again.
package evidence
