// Command unit is what the units of the conformance suite run: it does what its token
// says, as fleettest.Script does, and without one it waits, which makes it the cluster's
// pause image as well.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "install" {
		if err := install(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 4 && os.Args[1] == "copy" {
		if err := move(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	token, err := document()
	if err != nil {
		wait()
		return
	}
	for step := range strings.SplitSeq(string(token), ";") {
		what, arg, _ := strings.Cut(strings.TrimSpace(step), " ")
		switch what {
		case "say":
			fmt.Println(os.ExpandEnv(arg))
		case "exit":
			code, err := strconv.Atoi(arg)
			if err != nil {
				code = 99
			}
			os.Exit(code)
		case "oom":
			var kept [][]byte
			for {
				b := make([]byte, 1<<20)
				for i := 0; i < len(b); i += 4096 {
					b[i] = 1
				}
				kept = append(kept, b)
			}
		case "wait":
			wait()
			os.Exit(143)
		}
	}
}

// document is the token, or the payload, which is removed as job-runner does.
func document() ([]byte, error) {
	if payload := os.Getenv("EVERDICT_PAYLOAD_FILE"); payload != "" {
		doc, err := os.ReadFile(payload)
		if err == nil {
			err = os.Remove(payload)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(98)
		}
		return doc, nil
	}
	return os.ReadFile(os.Getenv("EVERDICT_JOIN_TOKEN_FILE"))
}

// move brings a payload to where it can be removed, as job-runner does.
func move(from, to string) error {
	doc, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, doc, 0o644)
}

// install copies this program, as job-runner does.
func install(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o755)
}

func wait() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	<-c
}
