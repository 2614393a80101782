package run

import (
	"context"
	"fmt"

	"github.com/everdict/everdict/coordinator/secret"
	"github.com/everdict/everdict/protocol"
)

// clusterSecretError says that a secret of the workspace serves calls of a cluster's API.
type clusterSecretError struct{ name, runtime string }

// Error implements error.
func (e *clusterSecretError) Error() string {
	return fmt.Sprintf("names the secret %s, with which the coordinator calls the cluster of runtime %s: such a secret enters no job", e.name, e.runtime)
}

func (e *clusterSecretError) hint() string {
	return "keep the job's own key under another name, and name that in the harness: everdict secrets set NAME"
}

// forJobs is ref as it may be resolved for a job of o: *clusterSecretError if it means a secret
// of the workspace that a registered runtime needs for its cluster. One's own secret is
// another one, whatever its name.
func (s *Service) forJobs(ctx context.Context, o secret.Owner, ref protocol.SecretRef) (protocol.SecretRef, error) {
	if ref.Scope == protocol.SecretUser {
		return ref, nil
	}
	kept, err := s.cfg.Runtimes.ClusterSecrets(ctx, o.Workspace)
	runtime := kept[ref.SecretRef]
	if err != nil || runtime == "" {
		return ref, err
	}
	if ref.Scope == "" {
		// Where the workspace has none of that name, it is the submitter's own.
		missing, err := s.cfg.Secrets.MissingNames(ctx, o.Workspace, []string{ref.SecretRef})
		if err != nil {
			return ref, err
		}
		if len(missing) > 0 {
			return protocol.SecretRef{SecretRef: ref.SecretRef, Scope: protocol.SecretUser}, nil
		}
	}
	return ref, &clusterSecretError{ref.SecretRef, runtime}
}
