// Package cli is the everdict command: its nouns and verbs, one file per noun,
// and how what they say looks to people and to programs.
//
// # Exit codes
//
//	0    done; for a command that judges (run, submit --wait, runs wait): passed
//	1    judged and not passed; for ask: rejected; for doctor: no runner could
//	     work here. Nothing else exits with 1
//	2    everything else: a run that could not be measured, a server that does
//	     not answer, bad input, wrong usage
//	3-6  of a runner: what its starter should know (see everdict runner --help)
//	130  interrupted (Ctrl-C); 143 terminated
//
// # Output
//
// What was asked for goes to stdout, in the form that -o names; progress, hints,
// warnings and errors go to stderr. With -o json stdout is one JSON document,
// with -o jsonl one per line, whatever happens meanwhile.
package cli
