package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
	"github.com/everdict/everdict/protocol/client"
)

// completion offers words to a shell; see cobra.Command.ValidArgsFunction.
type completion = func(cmd *cobra.Command, got []string, typed string) ([]string, cobra.ShellCompDirective)

// whileTyping is how long a person with a finger on the tab key waits.
const whileTyping = 2 * time.Second

// complete offers what list finds on the coordinator, each a word and after a tab what it is. many: the words that
// were typed before may be followed by more.
func (a *app) complete(many bool, list func(context.Context, *client.Client) []string) completion {
	return func(cmd *cobra.Command, got []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(got) > 0 && !many || a.loadConfig(cmd) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := a.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), whileTyping)
		defer cancel()
		words := slices.DeleteFunc(list(ctx, c), func(word string) bool {
			word, _, _ = strings.Cut(word, "\t")
			return slices.Contains(got, word)
		})
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeFlag offers words for the value of a flag.
func completeFlag(cmd *cobra.Command, flag string, words completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return words(cmd, nil, typed)
	}); err != nil {
		panic(err)
	}
}

// newestRuns are the runs that were submitted last.
func (a *app) newestRuns(ctx context.Context, c *client.Client) []string {
	var out []string
	for r, err := range first(c.Runs(ctx, client.RunFilter{PageSize: 30}), 30) {
		if err != nil {
			break
		}
		out = append(out, fmt.Sprintf("%s\t%s, %s, %s", cell(r.ID), r.Status, cell(r.CaseID), a.ago(r.CreatedAt)))
	}
	return out
}

// ownRunners are the machines of the caller.
func (a *app) ownRunners(ctx context.Context, c *client.Client) []string {
	runners, _ := c.Runners(ctx)
	var out []string
	for _, r := range runners {
		out = append(out, cell(r.ID)+"\t"+cell(r.Label))
	}
	return out
}

// targets are what a run can name as its runtime.
func (a *app) targets(ctx context.Context, c *client.Client) []string {
	out := []string{protocol.TargetAuto, protocol.TargetSelf, protocol.TargetSelfWorkspace}
	for _, r := range a.ownRunners(ctx, c) {
		out = append(out, protocol.TargetSelfPrefix+r)
	}
	return append(out, a.runtimes(ctx, c)...)
}

// runtimes are those that somebody has registered.
func (a *app) runtimes(ctx context.Context, c *client.Client) []string {
	entries, _ := c.Runtimes(ctx)
	var out []string
	for _, e := range entries {
		out = append(out, fmt.Sprintf("%s\t%s, %s", cell(e.ID), cell(e.Kind), cell(e.LatestVersion)))
	}
	return out
}

// registered are the versions of the harnesses that somebody has registered.
func (a *app) registered(ctx context.Context, c *client.Client) []string {
	entries, _ := c.Harnesses(ctx)
	var out []string
	for _, e := range entries {
		for _, version := range slices.Backward(e.Versions) {
			out = append(out, cell(e.ID)+"@"+cell(version)+"\t"+cell(e.Kind))
		}
	}
	return out
}

// harnesses are those that a run can name.
func (a *app) harnesses(ctx context.Context, c *client.Client) []string {
	var out []string
	for _, id := range protocol.Adapters() {
		out = append(out, id+"\tbuilt in")
	}
	return append(out, a.registered(ctx, c)...)
}
