package house

import (
	"context"
	"encoding/json"

	"github.com/everdict/everdict/protocol"
)

// Runtime registers a runtime of kind local whose pool takes limit runs at a time.
func (h *House) Runtime(id string, limit int) {
	h.T.Helper()
	spec, err := json.Marshal(protocol.RuntimeSpec{Kind: protocol.RuntimeLocal, ID: id, Version: "1.0.0", MaxConcurrent: &limit})
	if err == nil {
		_, err = h.Client.RegisterRuntime(context.Background(), spec)
	}
	if err != nil {
		h.T.Fatalf("register runtime %s: %v", id, err)
	}
}

// PoolToken makes a token for the pool of a runtime.
func (h *House) PoolToken(runtime string, expiresInSec int64) protocol.IssuedPoolToken {
	h.T.Helper()
	issued, err := h.Client.CreatePoolToken(context.Background(), &protocol.PoolTokenRequest{Runtime: runtime, ExpiresInSec: &expiresInSec})
	if err != nil {
		h.T.Fatalf("make a pool token of %s: %v", runtime, err)
	}
	return *issued
}

// Pool reads the pool of a runtime; zero while the coordinator is away.
func (h *House) Pool(runtime string) protocol.Pool {
	h.T.Helper()
	pools, err := h.Client.Pools(context.Background())
	if err != nil {
		return protocol.Pool{}
	}
	for _, p := range pools {
		if p.Runtime == runtime {
			return p
		}
	}
	return protocol.Pool{}
}
