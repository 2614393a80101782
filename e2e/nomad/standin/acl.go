package standin

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl"
	"github.com/hashicorp/nomad/api"
)

// rules are those of a policy, as they are written.
// https://developer.hashicorp.com/nomad/docs/other-specifications/acl-policy
type rules struct {
	Namespaces []struct {
		Name         string `hcl:",key"`
		Policy       string
		Capabilities []string
		Variables    *struct {
			Paths []struct {
				Path         string `hcl:",key"`
				Capabilities []string
			} `hcl:"path"`
		}
	} `hcl:"namespace"`
	Agent *struct{ Policy string }
	Node  *struct{ Policy string }
}

// short are the capabilities that the policy of a namespace stands for.
var short = map[string][]string{
	"read":  {"list-jobs", "parse-job", "read-job"},
	"write": {"list-jobs", "parse-job", "read-job", "submit-job", "dispatch-job", "read-logs", "read-fs", "alloc-exec", "alloc-lifecycle"},
}

// rights are what a request may do.
type rights struct {
	all bool
	of  []rules
}

// errToken says that nobody has this token.
var errToken = problem{http.StatusForbidden, "ACL token not found"}

// resolve is what the token of a request permits. The caller holds mu.
func (c *Cluster) resolve(r *http.Request) (rights, error) {
	if c.cfg.Token == "" {
		return rights{all: true}, nil
	}
	token, err := c.token(r)
	if err != nil || token == nil {
		return rights{}, err // without one, a request may do nothing
	}
	if token.Type == "management" {
		return rights{all: true}, nil
	}
	var can rights
	for _, name := range token.Policies {
		p := c.s.Policies[name]
		if p == nil {
			continue
		}
		parsed, err := parse(p.Rules)
		if err != nil {
			return rights{}, err
		}
		can.of = append(can.of, parsed)
	}
	return can, nil
}

func (c *Cluster) token(r *http.Request) (*api.ACLToken, error) {
	secret := r.Header.Get("X-Nomad-Token")
	if secret == "" {
		return nil, nil
	}
	if t := c.s.Tokens[secret]; t != nil {
		return t, nil
	}
	return nil, errToken
}

func parse(text string) (rules, error) {
	var r rules
	if err := hcl.Decode(&r, text); err != nil {
		return r, problem{http.StatusBadRequest, fmt.Sprintf("failed to parse policy: %v", err)}
	}
	return r, nil
}

// namespace says whether a capability is there in a namespace.
func (can rights) namespace(ns, capability string) bool {
	if can.all {
		return true
	}
	for _, r := range can.of {
		for _, n := range r.Namespaces {
			if glob(n.Name, ns) && (slices.Contains(n.Capabilities, capability) || slices.Contains(short[n.Policy], capability)) {
				return true
			}
		}
	}
	return false
}

// variable says whether a capability is there for a path.
func (can rights) variable(ns, path, capability string) bool {
	if can.all {
		return true
	}
	for _, r := range can.of {
		for _, n := range r.Namespaces {
			if !glob(n.Name, ns) || n.Variables == nil {
				continue
			}
			for _, p := range n.Variables.Paths {
				if glob(p.Path, path) && slices.Contains(p.Capabilities, capability) {
					return true
				}
			}
		}
	}
	return false
}

func (can rights) agent() bool {
	return can.all || slices.ContainsFunc(can.of, func(r rules) bool { return r.Agent != nil && r.Agent.Policy != "deny" })
}

func (can rights) nodes() bool {
	return can.all || slices.ContainsFunc(can.of, func(r rules) bool { return r.Node != nil && r.Node.Policy != "deny" })
}

// glob matches * with anything.
func glob(pattern, s string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == s
	}
	tail, ok := strings.CutPrefix(s, first)
	if !ok {
		return false
	}
	for i := range len(tail) + 1 {
		if glob(rest, tail[i:]) {
			return true
		}
	}
	return false
}

// managed is errDenied for whoever may not manage the cluster.
func (k *call) managed() error {
	if !k.can.all {
		return errDenied
	}
	return nil
}

func (c *Cluster) putNamespace(k *call) (any, error) {
	var in api.Namespace
	if err := errors.Join(k.managed(), k.body(&in)); err != nil {
		return nil, err
	}
	c.s.Namespaces[in.Name] = &in
	c.commit("namespaces")
	return nil, nil
}

func (c *Cluster) deleteNamespace(k *call) (any, error) {
	if err := k.managed(); err != nil {
		return nil, err
	}
	for _, j := range c.s.Jobs {
		if *j.Namespace == k.PathValue("name") && c.status(j) != "dead" {
			return nil, fmt.Errorf("namespace %q has non-terminal jobs in regions: [global]", *j.Namespace)
		}
	}
	delete(c.s.Namespaces, k.PathValue("name"))
	c.commit("namespaces")
	return nil, nil
}

func (c *Cluster) whose(k *call) (any, error) {
	if c.cfg.Token == "" {
		return nil, problem{http.StatusBadRequest, "ACL support disabled"}
	}
	t, err := c.token(k.Request)
	if err == nil && t == nil {
		err = errDenied
	}
	return t, err
}

func (c *Cluster) putToken(k *call) (any, error) {
	var in api.ACLToken
	if err := errors.Join(k.managed(), k.body(&in)); err != nil {
		return nil, err
	}
	in.AccessorID, in.SecretID, in.CreateTime = uuid(), uuid(), time.Now()
	c.s.Tokens[in.SecretID] = &in
	c.commit("acl_token")
	return in, nil
}

func (c *Cluster) deleteToken(k *call) (any, error) {
	if err := k.managed(); err != nil {
		return nil, err
	}
	maps.DeleteFunc(c.s.Tokens, func(_ string, t *api.ACLToken) bool { return t.AccessorID == k.PathValue("id") })
	c.commit("acl_token")
	return nil, nil
}

func (c *Cluster) putPolicy(k *call) (any, error) {
	var in api.ACLPolicy
	if err := errors.Join(k.managed(), k.body(&in)); err != nil {
		return nil, err
	}
	if _, err := parse(in.Rules); err != nil {
		return nil, err
	}
	c.s.Policies[k.PathValue("name")] = &in
	c.commit("acl_policy")
	return nil, nil
}

func (c *Cluster) deletePolicy(k *call) (any, error) {
	if err := k.managed(); err != nil {
		return nil, err
	}
	delete(c.s.Policies, k.PathValue("name"))
	c.commit("acl_policy")
	return nil, nil
}
