package protocol

// AskSocketEnv is set for every job: it names the unix socket on which its runner
// takes questions for a person. A connection carries one AskQuestion and one
// AskReply, each a line of JSON; the reply may take days.
const AskSocketEnv = "EVERDICT_ASK_SOCKET"

// MaxAskLine bounds the line of a question, in bytes.
const MaxAskLine = 16 << 10

// AskQuestion is what a job asks a person.
type AskQuestion struct {
	Question string `json:"question"`
}

// AskReply is what the person said. Approved is nil when nobody could be asked,
// and Error then says why.
type AskReply struct {
	Approved *bool  `json:"approved,omitempty"`
	Comment  string `json:"comment,omitempty"`
	Error    string `json:"error,omitempty"`
}
