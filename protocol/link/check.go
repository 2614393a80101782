package link

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// Check asks the coordinator whether it would take a runner with this credential in, without becoming one: no session
// is made, so none is taken over. Of cfg it needs URL and Credential, and uses TLS, CAFile, Proxy, DialContext and
// UserAgent. The errors are those of Dial; a *HTTPError means that something answered that is no coordinator, or one
// that cannot take runners now.
func Check(ctx context.Context, cfg DialConfig) error {
	u, err := connectURL(cfg.URL)
	if err != nil {
		return err
	}
	if cfg.Credential == "" {
		return &ConfigError{"no credential"}
	}
	tlsConfig, err := tlsConfig(cfg)
	if err != nil {
		return err
	}
	transport := &http.Transport{Proxy: cfg.Proxy, TLSClientConfig: tlsConfig, DialContext: cfg.DialContext, DisableKeepAlives: true}
	if transport.Proxy == nil {
		transport.Proxy = http.ProxyFromEnvironment
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, httpScheme(u), nil)
	if err != nil {
		return &ConfigError{"coordinator URL cannot be parsed"}
	}
	r.Header.Set("Authorization", "Bearer "+string(cfg.Credential))
	r.Header.Set("Sec-WebSocket-Protocol", Subprotocol)
	if cfg.UserAgent != "" {
		r.Header.Set("User-Agent", cfg.UserAgent)
	}
	client := &http.Client{
		Transport: transport,
		// A redirect could carry the credential to somebody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("link: connect: %w", err)
	}
	defer resp.Body.Close()
	err = httpError(resp)
	// The credential is looked at before the upgrade is: who is only asked to upgrade has been admitted. A coordinator
	// that is too new says so with a problem body, which is another error.
	if e, ok := err.(*HTTPError); ok && e.Status == http.StatusUpgradeRequired && e.Code == "" {
		return nil
	}
	return err
}

// httpScheme is a URL that connectURL made, for a plain request: ws is http, wss is https.
func httpScheme(u string) string {
	if rest, ok := strings.CutPrefix(u, "ws"); ok {
		return "http" + rest
	}
	return u
}
