package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/everdict/everdict/coordinator/auth"
	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/lease"
	"github.com/everdict/everdict/lease/sqlite"
	"github.com/everdict/everdict/protocol"
)

// checkSecrets refuses a harness that names secrets which the submitter has not, since no
// attempt could be given their values, or which are a cluster's. own reports whether the harness gets the
// submitter's own: only one that they registered themselves, because a harness
// decides what is done with them.
func (s *Service) checkSecrets(ctx context.Context, p auth.Principal, h *protocol.HarnessSpec) (own bool, err error) {
	var refs []protocol.SecretRef
	for _, ref := range h.SecretEnv() {
		refs = append(refs, ref)
	}
	if len(refs) == 0 {
		return false, nil
	}
	by, err := s.cfg.Registry.CreatedBy(ctx, p.Workspace, h.ID, h.Version)
	if err != nil {
		return false, err
	}
	own = by == p.Subject
	of := secretsOf(p.Workspace, p.Subject, own)
	for i, ref := range refs {
		if refs[i], err = s.forJobs(ctx, of, ref); err == nil {
			continue
		}
		var kept *clusterSecretError
		if !errors.As(err, &kept) {
			return own, err
		}
		return own, protocol.BadRequest("harness %s@%s %s", h.ID, h.Version, kept).WithHint("%s", kept.hint()).WithData("secrets", []string{kept.name})
	}
	missing, err := s.cfg.Secrets.Missing(ctx, of, refs)
	if err != nil || len(missing) == 0 {
		return own, err
	}
	problem := protocol.BadRequest("harness %s@%s needs secrets that are not there: %s", h.ID, h.Version, strings.Join(missing, ", "))
	if own {
		problem = problem.WithHint("%s", setSecretHint(missing))
	} else {
		problem = problem.WithHint("an admin sets them for the workspace: everdict secrets set NAME; "+
			"your own are given only to a harness that you registered, and %s registered this one", by)
	}
	return own, problem.WithData("secrets", missing)
}

// secretsOf are the secrets that a harness gets: the workspace's, and the submitter's
// own if own is set.
func secretsOf(workspace, subject string, own bool) secret.Owner {
	if !own {
		subject = ""
	}
	return secret.Owner{Workspace: workspace, Subject: subject}
}

// setSecretHint is how to set the first of the secrets that are missing.
func setSecretHint(missing []string) string {
	if name, own := strings.CutPrefix(missing[0], protocol.SecretUser+":"); own {
		return "set your own: everdict secrets set " + name + " --scope user"
	}
	return "an admin sets it for the workspace: everdict secrets set " + missing[0] + "; with --scope user anybody for themselves"
}

// Job is the document that a runner gets with its lease. The values of secrets are
// looked up now, and are nowhere but in the answer: it must go to the runner and be
// forgotten (P12). A *protocol.Failure says that no attempt can have one: see Refuse.
func (s *Service) Job(ctx context.Context, l lease.Lease) ([]byte, error) {
	sp, err := s.spec(ctx, l.Job)
	if err != nil {
		return nil, err
	}
	env, err := s.secretEnv(ctx, l, &sp)
	if err != nil {
		return nil, err
	}
	if sp.SubmittedBy == "" {
		r, err := s.cfg.Store.Run(ctx, l.Workspace, l.Job)
		if err != nil {
			return nil, fmt.Errorf("run: find who submitted %s: %w", l.Job, err)
		}
		sp.SubmittedBy = r.CreatedBy
	}
	doc, err := encode(protocol.Job{RunID: l.Job, Workspace: l.Workspace, SubmittedBy: sp.SubmittedBy, Case: sp.Case, Harness: sp.Harness, Env: env})
	if err == nil && len(doc) > protocol.MaxJobBytes {
		f := malformed(protocol.StageDispatch, fmt.Sprintf("the job has %d bytes, the limit is %d", len(doc), protocol.MaxJobBytes))
		f.Class, f.Code = protocol.ClassConfig, protocol.CodeBadRequest
		f.Limit = &protocol.Limit{Name: "job", Unit: "bytes", Configured: protocol.MaxJobBytes, Measured: float64(len(doc))}
		f.Hint = "give large files by a git source or an image"
		return nil, f
	}
	return doc, err
}

// encode is v as JSON, without the escapes that make <, > and & safe in HTML and six
// times as long.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// secretEnv are the variables of a harness whose values are secrets, with the values.
func (s *Service) secretEnv(ctx context.Context, l lease.Lease, sp *spec) (map[string]string, error) {
	h := &sp.Harness
	var env map[string]string
	var of secret.Owner
	var missing []string
	for variable, ref := range h.SecretEnv() {
		if env == nil {
			r, err := s.cfg.Store.Run(ctx, l.Workspace, l.Job)
			if err != nil {
				return nil, fmt.Errorf("run: find who submitted %s: %w", l.Job, err)
			}
			env, of = map[string]string{}, secretsOf(l.Workspace, r.CreatedBy, sp.OwnSecrets)
		}
		var value string
		means, err := s.forJobs(ctx, of, ref)
		if err == nil {
			value, err = s.cfg.Secrets.Resolve(ctx, of, means)
		}
		var unreadable *secret.UnreadableError
		var kept *clusterSecretError
		switch {
		case errors.As(err, &kept):
			f := secretFailure(fmt.Sprintf("harness %s@%s %s", h.ID, h.Version, kept))
			f.Hint = kept.hint()
			return nil, f
		case errors.Is(err, secret.ErrNotFound):
			missing = append(missing, ref.String())
		case errors.As(err, &unreadable):
			s.log.ErrorContext(ctx, "secret does not open: its row was damaged or changed", "run", l.Job, "err", err)
			return nil, secretFailure(fmt.Sprintf("harness %s@%s needs the secret %s, which cannot be read any more: set it again", h.ID, h.Version, ref))
		case err != nil:
			return nil, err
		default:
			env[variable] = value
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, secretFailure(fmt.Sprintf("harness %s@%s needs secrets that are not there any more: %s", h.ID, h.Version,
			strings.Join(slices.Compact(missing), ", ")))
	}
	return env, nil
}

func secretFailure(message string) *protocol.Failure {
	return &protocol.Failure{Stage: protocol.StageDispatch, Class: protocol.ClassConfig, Reason: protocol.ReasonSecret,
		Code: protocol.CodeBadRequest, Message: message}
}

// ErrBegun says that an attempt has begun: its runner has the job, and what was to be
// answered is a pull that was repeated.
var ErrBegun = errors.New("the attempt has begun")

// Refuse ends a run whose job no attempt can be given, with the failure that Job
// returned. One that has begun goes on, with ErrBegun.
func (s *Service) Refuse(ctx context.Context, ref lease.Ref, f *protocol.Failure) error {
	err := s.queue.Settle(ctx, ref, lease.Result{Outcome: lease.Failed, Reason: f.Message}, lease.With(func(tx *sqlite.Tx, ev *lease.Event) error {
		if ev.Started {
			return ErrBegun
		}
		return s.failed(tx, ev, protocol.AttemptReleased, f)
	}))
	if err != nil {
		return fmt.Errorf("run: refuse %s: %w", ref.Job, err)
	}
	return nil
}
