// Package outbox is the runner's spool: evidence and results on disk until a
// coordinator has acknowledged them, so that neither a lost session nor a crash
// of the runner loses what a run produced.
//
// Each attempt is a directory <dir>/<run>.<epoch>:
//
//	attempt.json   who it belongs to (0600: it holds the lease token)
//	log, trace...  one append-only file per channel
//	result.json    the result; when it is there the attempt is finished
//
// Order of writing: the channels, attempt.json and the attempt's name are fsynced,
// then the result is written to a temporary file, fsynced, renamed and its
// directory fsynced, and only then is it sent. An attempt is removed by renaming
// its directory away first: there is no moment at which a removed attempt looks
// like an unfinished one.
//
// Ship sends everything over one session. Each attempt has its own goroutine and
// stream, so a slow, failing or rejected one holds up no other, and nothing here
// waits for or is waited for by the pulling of work. After a lost session Ship
// is called again; each channel goes on from the coordinator's offset.
//
// On a full disk a write to a channel is all or nothing: what does not fit is
// counted as a gap and the file holds whole writes only. The result is sure of
// its place: each attempt holds a preallocated file from its beginning, which
// becomes result.json if nothing else fits.
package outbox
