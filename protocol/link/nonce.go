package link

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/everdict/everdict/protocol"
)

// bearer is what one connection to u, which connectURL made, authenticates with.
func (cfg *DialConfig) bearer(ctx context.Context, u string) (Secret, error) {
	if cfg.Credential == nil || cfg.Credential.Identity() == "" {
		return "", &ConfigError{"no credential"}
	}
	secret, err := cfg.Credential.Bearer(ctx, func(ctx context.Context) (string, error) { return cfg.nonce(ctx, u) })
	if err == nil && secret == "" {
		err = &ConfigError{"no credential"}
	}
	return secret, err
}

// maxNonceAnswer bounds the answer that a nonce comes in, in bytes.
const maxNonceAnswer = 4 << 10

// nonce asks the coordinator for one, in the way in which the connection will be made.
func (cfg *DialConfig) nonce(ctx context.Context, connect string) (string, error) {
	client, err := cfg.client()
	if err != nil {
		return "", err
	}
	u := strings.TrimSuffix(httpScheme(connect), Path) + NoncePath
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u, nil)
	if err != nil {
		return "", &ConfigError{"coordinator URL cannot be parsed"}
	}
	if cfg.UserAgent != "" {
		r.Header.Set("User-Agent", cfg.UserAgent)
	}
	resp, err := client.Do(r)
	if err != nil {
		return "", fmt.Errorf("link: get a nonce: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", httpError(resp)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxNonceAnswer))
	if err != nil {
		return "", fmt.Errorf("link: get a nonce: %w", err)
	}
	var answer protocol.Nonce
	// What is no nonce is from something on the way, and not signed.
	if json.Unmarshal(b, &answer) != nil || !protocol.ValidNonce(answer.Nonce) {
		return "", &HTTPError{Status: resp.StatusCode, Message: "what answers is no coordinator: it gave no nonce"}
	}
	return answer.Nonce, nil
}

// client makes single requests in the way in which connections are made.
func (cfg *DialConfig) client() (*http.Client, error) {
	tlsConfig, err := tlsConfig(*cfg)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: cfg.Proxy, TLSClientConfig: tlsConfig, DialContext: cfg.DialContext, DisableKeepAlives: true}
	if transport.Proxy == nil {
		transport.Proxy = http.ProxyFromEnvironment
	}
	return &http.Client{Transport: transport, CheckRedirect: noRedirect}, nil
}

// noRedirect is for http.Client: a redirect could carry the credential to somebody else.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
