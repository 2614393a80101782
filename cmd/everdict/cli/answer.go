package cli

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/everdict/everdict/protocol"
)

// answers decide what the agent of a local run asks: nobody else can, since its
// coordinator is in this process alone.
type answers struct {
	// given is yes or no; empty: the person at the terminal says it, and where there is
	// none it is no.
	given string
	input *bufio.Reader
}

// answer is what becomes of a question, apart from the goroutine that draws.
func (p *progress) answer(by *answers) {
	question, given, comment := p.question(), by.given, ""
	switch {
	case given != "":
		comment = "by --answer " + given
	case p.a.atTerminal():
		p.say("the agent waits for " + question + "\n  yes or no? ")
		said, err := by.input.ReadString('\n')
		if err != nil {
			comment = "nobody is there to ask"
		}
		if given = "no"; strings.HasPrefix(strings.ToLower(strings.TrimSpace(said)), "y") {
			given = "yes"
		}
	default:
		given, comment = "no", "nobody is there to ask"
		p.say("nobody is there to ask: give --answer yes or no, or run it in a terminal")
	}
	p.say(fmt.Sprintf("the agent waits for %s: answered %s", question, given)) // afterwards the run may be over
	decide := p.client.Reject
	if given == "yes" {
		decide = p.client.Approve
	}
	if _, err := decide(p.ctx, p.id, protocol.Decision{Comment: comment}); err != nil {
		p.say("the answer was not taken: " + err.Error())
	}
}

// say has the goroutine that draws say something; when it has ended nobody hears it.
func (p *progress) say(text string) {
	select {
	case p.said <- text:
	case <-p.done:
	}
}
