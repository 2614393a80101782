package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everdict/everdict/protocol"
)

func (a *app) submitCommand() *cobra.Command {
	var file, runtime, harness, priority string
	var wait bool
	cmd := &cobra.Command{
		Use:   "submit -f FILE",
		Short: "Submit a run that a JSON file describes",
		Long: `Submit a run that a JSON file describes: the body of POST /runs. When the command returns, the run is on the
coordinator's disk. With --wait it watches the run and prints what came of it; Ctrl-C then stops the watching,
not the run.

Exit codes with --wait: 0 passed, 1 did not pass, 2 could not be measured.`,
		Example: `  everdict submit -f run.json
  everdict submit -f run.json --wait
  everdict submit -f run.json --runtime self --harness claude-code -o json
  generate-case | everdict submit -f - --wait`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return &usageError{cmd, "say which run to submit: -f run.json, or -f - for standard input"}
			}
			body, err := a.readJSON(file, protocol.MaxBodyBytes)
			if err != nil {
				return err
			}
			if err := notARun(file, body); err != nil {
				return err
			}
			if body, err = override(body, runtime, harness, priority); err != nil {
				return err
			}
			a.warnOfRun(body)
			c, err := a.client()
			if err != nil {
				return err
			}
			run, err := c.SubmitJSON(cmd.Context(), body)
			if err != nil {
				return err
			}
			for _, w := range run.Warnings {
				if strings.HasPrefix(w, "harness.params.") {
					continue // said before it was sent, with what was probably meant
				}
				a.warn("%s", w)
			}
			if !wait {
				return a.printSubmitted(run)
			}
			a.hint("submitted %s", run.ID)
			code, err := a.waitAndPrint(cmd.Context(), c, run.ID)
			if err != nil || code == exitPass {
				return err
			}
			return &ExitError{Code: code}
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "file", "f", "", "JSON file with the run, - for standard input")
	f.BoolVar(&wait, "wait", false, "watch the run and exit with its verdict")
	f.StringVar(&runtime, "runtime", "", "where to run, in place of the file's runtime: a runtime id, several with commas, self, self:rnr_..., auto")
	f.StringVar(&harness, "harness", "", "harness id[@version], in place of the file's")
	f.StringVar(&priority, "priority", "", "interactive or batch, in place of the file's")
	a.fixed(cmd, "priority", "interactive", "batch")
	completeFlag(cmd, "harness", a.complete(false, a.harnesses))
	completeFlag(cmd, "runtime", a.complete(false, a.targets))
	return cmd
}

func (a *app) printSubmitted(run *protocol.SubmittedRun) error {
	if a.forPrograms() {
		return a.json(run)
	}
	fmt.Fprintf(a.out, "%s %s\n", cell(run.ID), run.Status)
	if p := run.Placement; p != nil && p.BlockedReason != "" {
		a.hint("  waits: %s", oneLine(p.BlockedReason, 400))
	}
	a.hint("  watch it: everdict runs wait %s", run.ID)
	return nil
}

// readJSON reads a document of at most limit bytes from a file or, for "-", from
// standard input, and says where it is broken.
func (a *app) readJSON(path string, limit int64) (json.RawMessage, error) {
	in, name := a.in, "standard input"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in, name = f, path
	}
	b, err := io.ReadAll(io.LimitReader(in, limit+1))
	var opened *fs.PathError
	if errors.As(err, &opened) {
		return nil, err // has the name
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, &adviceError{fmt.Errorf("%s is empty", name), "it has to hold a JSON object"}
	}
	if int64(len(b)) > limit {
		return nil, &adviceError{fmt.Errorf("%s is larger than %d MiB, which is what the API takes", name, limit>>20),
			"give large inputs as a git repository or a path instead of files"}
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(b, &object); err != nil {
		return nil, &adviceError{fmt.Errorf("%s is not a JSON object: %w%s", name, err, place(b, err)), "mend the file; a run looks like the curl example in the README"}
	}
	return b, nil
}

// notARun refuses the spec of a harness, which is often the next file in the directory.
func notARun(file string, body json.RawMessage) error {
	if has := keysOf(body); has["case"] || !has["kind"] && !has["template"] {
		return nil
	}
	return &adviceError{fmt.Errorf("%s is the spec of a harness, and no run", file),
		"everdict harnesses register -f " + quoteArg(file) + ", then submit a run that names it"}
}

// notASpec refuses a run in the place of a harness, and a template that is not said to be one: a version that is
// registered stays.
func notASpec(cmd *cobra.Command, file string, spec json.RawMessage, template bool) error {
	switch has := keysOf(spec); {
	case has["case"] && !has["kind"] && !has["template"]:
		return &adviceError{fmt.Errorf("%s is a run, and no spec of a harness", file), "everdict submit -f " + quoteArg(file)}
	case has["category"] && !template:
		return &adviceError{fmt.Errorf("%s is a template, since it has a category", file),
			cmd.CommandPath() + " --template -f " + quoteArg(file) + "; a harness has no category"}
	}
	return nil
}

// keysOf are the keys of a JSON object.
func keysOf(document json.RawMessage) map[string]bool {
	var object map[string]json.RawMessage
	keys := map[string]bool{}
	if json.Unmarshal(document, &object) == nil {
		for key := range object {
			keys[key] = true
		}
	}
	return keys
}

// place is where in b a JSON error lies.
func place(b []byte, err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	offset := int64(-1)
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &kind):
		offset = kind.Offset
	}
	if offset < 0 || offset > int64(len(b)) {
		return ""
	}
	before := string(b[:offset])
	return fmt.Sprintf(" (line %d, column %d)", strings.Count(before, "\n")+1, len(before)-strings.LastIndex(before, "\n")-1)
}

// override lays what the command line says over a body, leaving the rest of it
// as it is.
func override(body json.RawMessage, runtime, harness, priority string) (json.RawMessage, error) {
	if runtime == "" && harness == "" && priority == "" {
		return body, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, err
	}
	set := func(key string, v any) error {
		b, err := json.Marshal(v)
		object[key] = b
		return err
	}
	var errs []error
	if runtime != "" {
		errs = append(errs, set("runtime", runtime))
	}
	if priority != "" {
		errs = append(errs, set("priority", priority))
	}
	if harness != "" {
		ref := harnessRef(harness)
		var before protocol.HarnessRef
		if old := object["harness"]; old != nil && json.Unmarshal(old, &before) == nil && before.ID == ref.ID {
			ref.Params = before.Params
		}
		errs = append(errs, set("harness", ref))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

// harnessRef reads id[@version].
func harnessRef(s string) protocol.HarnessRef {
	id, version, found := strings.Cut(s, "@")
	if !found {
		version = protocol.Latest
	}
	return protocol.HarnessRef{ID: id, Version: version}
}
