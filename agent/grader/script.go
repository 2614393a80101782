package grader

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"github.com/everdict/everdict/agent/evidence/trace"
	"github.com/everdict/everdict/protocol"
)

// script runs a program of the case's own over the evidence. It gets the path of
// a JSON file {case, trace, snapshot} as its argument and prints one score or a
// list of scores as JSON, possibly after other output.
func script(ctx context.Context, in *Input, spec protocol.GraderSpec) ([]protocol.Score, error) {
	parsed, err := spec.ParseConfig()
	if err != nil {
		return nil, err
	}
	cfg := parsed.(*protocol.ScriptConfig)
	if cfg.Image != "" {
		return nil, &Unmeasured{Reason: protocol.ReasonUnsupported, Detail: "config.image: this runner runs graders in the case's own sandbox only"}
	}
	if in.Compute == nil {
		return nil, &Unmeasured{Reason: protocol.ReasonUnsupported, Detail: "this grader needs a sandbox, and there is none any more"}
	}
	dir, err := in.openDir(cfg.Cwd)
	if err != nil {
		return nil, fmt.Errorf("config.cwd %s: %w", cfg.Cwd, err)
	}
	defer dir.Close()
	if err := writeNew(dir, cfg.ContextPath, 0o644, in.writeContext); err != nil {
		return nil, fmt.Errorf("write %s: %w", cfg.ContextPath, err)
	}
	defer dir.RemoveAll(cfg.ContextPath)

	interpreter, name := "python3", "everdict-grader.py"
	if cfg.Language == "node" {
		interpreter, name = "node", "everdict-grader.mjs"
	}
	program := "./" + cfg.Entrypoint
	if cfg.Code != "" {
		// Not in the workspace: an interpreter looks for modules beside its program first, and finds there what the agent
		// has called json.py.
		own, err := in.private("grader/script")
		if err != nil {
			return nil, err
		}
		defer own.remove()
		if err := own.write(name, []byte(cfg.Code), 0o644); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
		program = filepath.Join(own.path, name)
	}
	r, err := in.run(ctx, job{
		args: []string{interpreter, program, "./" + cfg.ContextPath}, cwd: cfg.Cwd, timeoutSec: cfg.TimeoutSec, stdoutOnly: true,
	})
	if err != nil {
		return nil, err
	}
	if !r.pass() {
		return nil, fmt.Errorf("the script exited %d: %s", r.exit.Code, clipDetail(r.err.String()+"\n"+r.out.String()))
	}
	scores, err := parseScores(r.out.Bytes())
	if err != nil {
		return nil, fmt.Errorf("%w; it printed: %s", err, clipDetail(r.out.String()))
	}
	return scores, nil
}

// writeContext writes the evidence file. The trace is copied event by event: it
// can be longer than memory should hold.
func (in *Input) writeContext(w io.Writer) error {
	head, err := json.Marshal(in.Case)
	if err != nil {
		return err
	}
	snapshot, err := json.Marshal(in.Snapshot)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, `{"case":%s,"snapshot":%s,"trace":[`, head, snapshot); err != nil {
		return err
	}
	if err := in.copyTrace(w); err != nil {
		return err
	}
	_, err = io.WriteString(w, "]}\n")
	return err
}

func (in *Input) copyTrace(w io.Writer) error {
	if in.OpenTrace == nil {
		return nil
	}
	src, err := in.OpenTrace()
	if err != nil {
		return fmt.Errorf("open the trace: %w", err)
	}
	defer src.Close()
	separator := ""
	_, err = trace.Read(src, func(ev protocol.TraceEvent) error {
		b, err := json.Marshal(ev)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s%s", separator, b)
		separator = ","
		return err
	})
	return err
}

// printedScore is a score as a script prints it.
type printedScore struct {
	Metric    string   `json:"metric"`
	Value     *float64 `json:"value"`
	Pass      *bool    `json:"pass"`
	Label     string   `json:"label"`
	Detail    string   `json:"detail"`
	Status    string   `json:"status"`
	Reason    string   `json:"reason"`
	Retryable *bool    `json:"retryable"`
}

// parseBound is how many bytes parseScores decodes in search of the scores, beside the
// whole: what a script prints must not keep a runner at work.
const parseBound = 64 << 20

// parseScores reads one score or a non-empty list: the whole output, or the last
// JSON document that stands at the beginning of a line and reaches to the end, as far
// as parseBound goes.
func parseScores(out []byte) ([]protocol.Score, error) {
	out = bytes.TrimSpace(out)
	if len(out) == 0 {
		return nil, fmt.Errorf("the script printed nothing: want a score such as {\"metric\":\"m\",\"value\":1}")
	}
	printed, ok := decodeScores(out)
	for end, left := len(out), parseBound; !ok && end > 0; {
		i := bytes.LastIndexByte(out[:end], '\n')
		if i < 0 {
			break
		}
		end = i
		if rest := bytes.TrimLeft(out[i+1:], " \t"); len(rest) > 0 && (rest[0] == '{' || rest[0] == '[') {
			if left -= len(rest); left < 0 {
				break
			}
			printed, ok = decodeScores(rest)
		}
	}
	if !ok || len(printed) == 0 {
		return nil, fmt.Errorf("the script's output does not end in a score or a list of scores")
	}
	scores := make([]protocol.Score, len(printed))
	for i, p := range printed {
		if p.Metric == "" || p.Value == nil && p.Status == "" {
			return nil, fmt.Errorf("score %d has no metric or no value", i+1)
		}
		scores[i] = protocol.Score{Metric: p.Metric, Value: p.Value, Pass: p.Pass, Label: p.Label, Detail: p.Detail,
			Status: p.Status, Reason: p.Reason, Retryable: p.Retryable}
	}
	return scores, nil
}

func decodeScores(b []byte) ([]printedScore, bool) {
	if len(b) > 0 && b[0] == '[' {
		var list []printedScore
		return list, json.Unmarshal(b, &list) == nil
	}
	if len(b) > 0 && b[0] != '{' {
		return nil, false
	}
	var one printedScore
	if json.Unmarshal(b, &one) != nil {
		return nil, false
	}
	return []printedScore{one}, true
}
