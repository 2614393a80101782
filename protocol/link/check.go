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
	client, err := cfg.client()
	if err != nil {
		return err
	}
	secret, err := cfg.bearer(ctx, u)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, httpScheme(u), nil)
	if err != nil {
		return &ConfigError{"coordinator URL cannot be parsed"}
	}
	r.Header.Set("Authorization", "Bearer "+string(secret))
	r.Header.Set("Sec-WebSocket-Protocol", Subprotocol)
	if cfg.UserAgent != "" {
		r.Header.Set("User-Agent", cfg.UserAgent)
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
