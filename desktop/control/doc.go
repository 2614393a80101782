// Package control is how the resident desktop app is seen and steered: by its page, by `everdict-desktop status` and the
// like, and by tests. It has the documents, the server for both doors and the client; what is done is the App's.
//
// # The two doors
//
// The socket is a unix socket in the user's own runtime directory. Whoever can open it is the user. It has every endpoint
// at /api/... . The first process of a user listens on it, and a second one hands over through it what it was started with.
//
// The page is served at http://127.0.0.1:PORT/w/SECRET/ while a window is open, and not at all otherwise: the port is closed
// some seconds after the last window's event stream has ended. PORT and SECRET are new each time. The window is opened at
// /open?token=TOKEN, which trades the token, good once and for a minute, for a cookie (HttpOnly, SameSite=Strict, Path=/w/SECRET/)
// and redirects to the page. Cookies know no ports, hence the path: another server of this machine is never sent it. So
// every URL in the page is relative ("api/state", "assets/x.js", never "/api/state").
//
// At that door every request needs the cookie, the Host 127.0.0.1:PORT and, where the browser sends them, an Origin and a
// Sec-Fetch-Site of the page itself; otherwise it is 403 and nothing is said. There is no CORS.
//
// # Requests
//
// A change is a POST or PUT with Content-Type application/json, also where the body is {}. Everything else is 415. A body is at
// most 64 KiB and has no key that is not in its type. An error is a protocol.Problem: {code, message, hint?}.
//
//	GET  api/state                        State
//	GET  api/events                       text/event-stream, see below
//	GET  api/history?limit=N              History, the newest first; at most 200
//	GET  api/machine                      Machine: what was found last; looked for if it never was
//	POST api/machine        {}            Machine: looks again, which takes some seconds
//	PUT  api/settings       Settings      Settings as they are kept. All of them are sent; the answer is State.Settings
//	POST api/pair           PairRequest   202 Pairing: begins to connect this computer; the browser opens by itself
//	POST api/pair/browser   {}            Pairing: opens the browser once more
//	POST api/pair/cancel    {}            204
//	POST api/question       Answer        202 Pairing, or 204 when the answer is no: what a deep link asked
//	POST api/pause          PauseRequest  State
//	POST api/resume         ResumeRequest State
//	PUT  api/connections/ID ConnectionSettings  Connection: the settings of one; it starts anew if it has to
//	POST api/connections/ID/retry {}      Connection: tries again now
//	POST api/connections/ID/unpair {}     Unpaired: the connection is gone, whatever the coordinator said
//	POST api/keys           KeyMove       Keys: moves the device keys to the keyring or to a file
//	GET  api/jobs/RUN/EPOCH/log           text/event-stream, see below
//	POST api/notices/dismiss NoticeDismissal    204
//	POST api/open           OpenRequest   Opened: shows the window, and takes a deep link (socket only)
//	POST api/quit           QuitRequest   204, or 409 JOB_RUNNING with what runs, if not forced
//	POST api/visit          VisitRequest  204: opens a page of the coordinator in the browser
//
// # Events
//
// api/events sends an event "state" with a State at once and after each change, at most a few a second. A comment line keeps
// the stream alive. The stream is also what says that a window is open. State.HistoryRev and State.MachineRev grow
// when api/history and api/machine have something new. Each State is whole: there is nothing to merge.
//
// api/jobs/RUN/EPOCH/log sends events "log" with a LogChunk: first what is kept of the end of the log (64 KiB at most), then
// what comes, and "end" with {} when the job has ended. The text is the job's own, secrets masked: it has escape sequences, and
// it must be shown as text. 404 when the job is not running here.
package control
