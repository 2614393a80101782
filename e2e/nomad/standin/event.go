package standin

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

const (
	// eventBuffer is how many events are kept for whoever comes later, and eventBeat how
	// often an empty one says that the stream lives: Nomad's defaults.
	// https://developer.hashicorp.com/nomad/api-docs/events
	eventBuffer = 100
	eventBeat   = 10 * time.Second
)

// event is one of the stream.
type event struct {
	Topic, Type, Key, Namespace string
	FilterKeys                  []string
	Index                       uint64
	Payload                     map[string]json.RawMessage
}

// publish adds an event about what changes in the commit that follows. The caller holds
// mu.
func (c *Cluster) publish(topic, kind, id, namespace, job string, of any) {
	b, err := json.Marshal(of)
	if err != nil {
		panic(err) // the state is written as JSON all the time
	}
	e := event{Topic: topic, Type: kind, Key: id, Namespace: namespace, Index: c.s.Index + 1, Payload: map[string]json.RawMessage{topic: b}}
	if job != "" {
		e.FilterKeys = []string{job}
	}
	c.events = append(c.events, e)
	c.events = c.events[max(0, len(c.events)-eventBuffer):]
}

func (c *Cluster) publishAllocation(a *api.Allocation) {
	bare := *a
	bare.Job = nil // as Nomad leaves it out
	c.publish("Allocation", "AllocationUpdated", a.ID, a.Namespace, a.JobID, &bare)
}

// stream is the event stream: what changes, as long as the request lives and the server
// does.
func (c *Cluster) stream(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	ns := cmp.Or(q.Get("namespace"), api.DefaultNamespace)
	topics := q["topic"]
	index, _ := strconv.ParseUint(q.Get("index"), 10, 64) // none is 0
	c.mu.Lock()
	err := error(errNoLeader)
	if c.s != nil {
		var can rights
		if can, err = c.resolve(r); err == nil && !can.namespace(ns, "read-job") {
			err = errDenied
		}
	}
	c.mu.Unlock()
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	beat := time.NewTicker(eventBeat)
	defer beat.Stop()
	flow := http.NewResponseController(w)
	out := json.NewEncoder(w)
	if flow.Flush() != nil {
		return
	}
	for {
		c.mu.Lock()
		changed, up := c.changed, c.s != nil
		var news []event
		for _, e := range c.events {
			if e.Index > index && (e.Namespace == "" || e.Namespace == ns) && wanted(topics, e) {
				news = append(news, e)
			}
		}
		c.mu.Unlock()
		if !up {
			return
		}
		for _, e := range news {
			index = e.Index
			if out.Encode(map[string]any{"Index": e.Index, "Events": []event{e}}) != nil {
				return
			}
		}
		if len(news) > 0 && flow.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		case <-beat.C:
			if out.Encode(struct{}{}) != nil || flow.Flush() != nil {
				return
			}
		}
	}
}

// wanted says whether an event is of one of the topics, each Topic:key with * for any.
func wanted(topics []string, e event) bool {
	if len(topics) == 0 {
		return true
	}
	return slices.ContainsFunc(topics, func(t string) bool {
		topic, k, _ := strings.Cut(t, ":")
		return glob(topic, e.Topic) && (k == "" || k == "*" || k == e.Key || slices.Contains(e.FilterKeys, k))
	})
}
