package standin

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
)

func (c *Cluster) variable(k *call) (any, error) {
	if !k.can.variable(k.ns, k.PathValue("path"), "read") {
		return nil, errDenied
	}
	v := c.s.Variables[key(k.ns, k.PathValue("path"))]
	if v == nil {
		return nil, problem{http.StatusNotFound, "variable not found"}
	}
	return v, nil
}

// checked says whether a variable is as ?cas= wants it; if not, the conflict is the
// answer.
func (c *Cluster) checked(k *call, v *api.Variable) bool {
	cas := k.URL.Query().Get("cas")
	if cas == "" {
		return true
	}
	if v == nil {
		v = &api.Variable{Namespace: k.ns, Path: k.PathValue("path")}
	}
	if cas == strconv.FormatUint(v.ModifyIndex, 10) {
		return true
	}
	k.w.WriteHeader(http.StatusConflict)
	return false
}

func (c *Cluster) putVariable(k *call) (any, error) {
	var in api.Variable
	if err := k.body(&in); err != nil {
		return nil, err
	}
	k.ns = cmp.Or(in.Namespace, k.ns)
	if !k.can.variable(k.ns, k.PathValue("path"), "write") {
		return nil, errDenied
	}
	id := key(k.ns, k.PathValue("path"))
	was := c.s.Variables[id]
	if !c.checked(k, was) {
		return cmp.Or(was, &api.Variable{}), nil
	}
	in.Namespace, in.CreateIndex, in.ModifyIndex = k.ns, c.s.Index+1, c.s.Index+1
	c.s.Variables[id] = &in
	c.commit("variables")
	return in, nil
}

func (c *Cluster) deleteVariable(k *call) (any, error) {
	if !k.can.variable(k.ns, k.PathValue("path"), "destroy") {
		return nil, errDenied
	}
	id := key(k.ns, k.PathValue("path"))
	if was := c.s.Variables[id]; !c.checked(k, was) {
		return cmp.Or(was, &api.Variable{}), nil
	}
	delete(c.s.Variables, id)
	c.commit("variables")
	return nil, nil
}

func (c *Cluster) variables(k *call) (any, error) {
	all := []*api.VariableMetadata{}
	for _, v := range c.s.Variables {
		if v.Namespace == k.ns && strings.HasPrefix(v.Path, k.URL.Query().Get("prefix")) && k.can.variable(k.ns, v.Path, "list") {
			all = append(all, &api.VariableMetadata{Namespace: v.Namespace, Path: v.Path, CreateIndex: v.CreateIndex, ModifyIndex: v.ModifyIndex})
		}
	}
	return all, nil
}
