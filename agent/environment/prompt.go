package environment

import (
	"context"
	"os"
	"path/filepath"

	"github.com/everdict/everdict/protocol"
)

// Prompt is the environment without a workspace to record: the agent gets an
// empty directory, and what counts is its last message. It needs no git.
type Prompt struct{}

var _ Environment = Prompt{}

// Kind returns "prompt".
func (Prompt) Kind() string { return protocol.EnvPrompt }

// Prepare makes the empty directory.
func (Prompt) Prepare(ctx context.Context, a Attempt) (Prepared, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := a.Files.Mkdir(WorkDir, 0o777); err != nil {
		return nil, hostError("make the workspace", err)
	}
	return &preparedPrompt{dir: filepath.Join(a.Root, WorkDir), files: a.Files}, nil
}

type preparedPrompt struct {
	dir   string
	files *os.Root
}

func (p *preparedPrompt) Dir() string      { return p.dir }
func (p *preparedPrompt) Baseline() string { return "" }

func (p *preparedPrompt) Snapshot(context.Context) (*Snapshot, error) {
	return &Snapshot{Document: protocol.Snapshot{Kind: protocol.EnvPrompt}}, nil
}

func (p *preparedPrompt) Cleanup(ctx context.Context) error {
	return removeIn(ctx, p.files, WorkDir)
}
