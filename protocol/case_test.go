package protocol

import (
	"errors"
	"strings"
	"testing"
)

// TestP15_CaseValidation: what cannot be carried out is refused with its path.
func TestP15_CaseValidation(t *testing.T) {
	t.Parallel()
	repo := func(s RepoSource) EnvSpec { return EnvSpec{Kind: EnvRepo, Source: &s} }
	for _, tt := range []struct {
		name   string
		change func(*Case)
		want   string // of the message; empty: valid
	}{
		{"a prompt", func(*Case) {}, ""},
		{"no id", func(c *Case) { c.ID = "" }, "case.id"},
		{"an id with a slash", func(c *Case) { c.ID = "a/b" }, "case.id"},
		{"no task", func(c *Case) { c.Task = " \n" }, "case.task"},
		{"a negative timeout", func(c *Case) { c.TimeoutSec = -1 }, "case.timeoutSec"},
		{"an unknown environment", func(c *Case) { c.Env.Kind = "moon" }, "unknown environment"},
		{"a repo without a source", func(c *Case) { c.Env = EnvSpec{Kind: EnvRepo} }, "case.env.source"},
		{"two sources", func(c *Case) { c.Env = repo(RepoSource{Git: "https://h/r", Path: "/x"}) }, "exactly one"},
		{"files", func(c *Case) { c.Env = repo(RepoSource{Files: map[string]string{"a/b": "", "c": ""}}) }, ""},
		{"no files at all", func(c *Case) { c.Env = repo(RepoSource{Files: map[string]string{}}) }, ""},
		{"a file below a file", func(c *Case) { c.Env = repo(RepoSource{Files: map[string]string{"a": "", "a/b": ""}}) }, "lies below"},
		{"a path that leaves", func(c *Case) { c.Env = repo(RepoSource{Files: map[string]string{"../x": ""}}) }, "leaves the repository"},
		{"an absolute path", func(c *Case) { c.Env = repo(RepoSource{Files: map[string]string{"/etc/passwd": ""}}) }, "is absolute"},
		{"the repository's own directory", func(c *Case) { c.Env = repo(RepoSource{Files: map[string]string{"a/.GIT/config": ""}}) }, ".git"},
		{"a git URL", func(c *Case) { c.Env = repo(RepoSource{Git: "https://user@host:8443/r.git", Ref: "main"}) }, ""},
		{"an scp-like URL", func(c *Case) { c.Env = repo(RepoSource{Git: "git@host:group/r.git"}) }, ""},
		{"a local clone", func(c *Case) { c.Env = repo(RepoSource{Git: "/srv/r.git"}) }, ""},
		{"a transport helper", func(c *Case) { c.Env = repo(RepoSource{Git: "ext::sh -c id"}) }, "not a clone URL"},
		{"an option as URL", func(c *Case) { c.Env = repo(RepoSource{Git: "--upload-pack=id"}) }, "not a clone URL"},
		{"an option as host", func(c *Case) { c.Env = repo(RepoSource{Git: "ssh://-oProxyCommand=id/r"}) }, "not a clone URL"},
		{"an option as scp host", func(c *Case) { c.Env = repo(RepoSource{Git: "git@-oProxyCommand=id:r"}) }, "not a clone URL"},
		{"an option as ref", func(c *Case) { c.Env = repo(RepoSource{Git: "https://h/r", Ref: "--x"}) }, "case.env.source.ref"},
		{"hosts without a list", func(c *Case) { c.Network = &Network{Mode: NetworkNone, AllowedHosts: []string{"h"}} }, "allowedHosts"},
		{"an unknown approval", func(c *Case) { c.Approval = "later" }, "case.approval"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := Case{ID: "c1", Task: "Do it", Env: EnvSpec{Kind: EnvPrompt}}
			c.Normalize()
			tt.change(&c)
			err := c.Validate()
			var p *Problem
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v, want it to be valid", err)
			case tt.want != "" && (!errors.As(err, &p) || p.Status != 400 || !strings.Contains(p.Message, tt.want)):
				t.Errorf("got %v, want a 400 about %q", err, tt.want)
			}
		})
	}
}

// FuzzCheckFilePath: what is accepted stays inside of the repository.
func FuzzCheckFilePath(f *testing.F) {
	for _, s := range []string{"a", "a/b", "../a", "a/../b", "/a", `a\b`, ".git/x", "a//b", "c:x", "a\x00", "."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if CheckFilePath(p) != nil {
			return
		}
		for segment := range strings.SplitSeq(p, "/") {
			if segment == "" || segment == "." || segment == ".." || strings.EqualFold(segment, ".git") {
				t.Errorf("%q was accepted with segment %q", p, segment)
			}
		}
	})
}
