package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// DefaultBaseURL is where a coordinator listens unless told otherwise.
const DefaultBaseURL = "http://127.0.0.1:8787"

// Config says how to reach a coordinator. The zero value reaches one on this
// machine in development mode.
type Config struct {
	// BaseURL is the coordinator's address, with a path when it is served below
	// one. Default DefaultBaseURL.
	BaseURL string
	// Token is an API key (ak_...); it is sent in the Authorization header only.
	Token string
	// Tenant is the workspace that a coordinator in development mode acts for;
	// with a token, the token decides. Empty: the server's default.
	Tenant string
	// CAFile is a PEM file of certificates to trust beside the system's. It goes
	// with HTTP == nil only.
	CAFile string
	// HTTP sends the requests. Default: a client that takes proxies from the
	// environment, and follows no redirect of a request with a body.
	HTTP *http.Client
	// UserAgent names the caller. Default "everdict-client".
	UserAgent string
	// Retries bounds how often one request is tried again. Default 3; negative: never.
	Retries int
	// Patience is how long a stream or a wait goes on trying to reach a server
	// that does not answer. Default 2 minutes: a coordinator that restarts on a
	// slow disk is back by then.
	Patience time.Duration
	// Silence is how long a stream may carry nothing before it counts as dead.
	// Default 45 s; the server writes at least every 15 s.
	Silence time.Duration
	// Contact, when set, is told of every try: nil when the server answered, else
	// why it did not although it will be asked again, or ErrUnanswered while it still
	// may. It is called from whichever goroutine tries, and must not block.
	Contact func(error)
}

// Client calls one coordinator. It is safe for use by several goroutines.
type Client struct {
	cfg  Config
	base *url.URL
	http *http.Client
}

// New checks cfg and makes a client. It sends nothing.
func New(cfg Config) (*Client, error) {
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	base, err := url.Parse(cfg.BaseURL)
	switch {
	case err != nil:
		return nil, protocolError("the address %q is not a URL", cfg.BaseURL)
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, protocolError("the address %q has no http:// or https:// and host", cfg.BaseURL)
	case base.User != nil:
		return nil, protocolError("the address of the coordinator carries a user name or password: give a key in EVERDICT_API_KEY instead")
	case base.RawQuery != "" || base.Fragment != "":
		return nil, protocolError("the address %q has a query or a fragment", cfg.BaseURL)
	}
	base.Path, base.RawPath = strings.TrimRight(base.Path, "/"), strings.TrimRight(base.RawPath, "/")
	if strings.ContainsAny(cfg.Token, " \t\r\n") {
		return nil, protocolError("the API key contains white space")
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "everdict-client"
	}
	if cfg.Retries == 0 {
		cfg.Retries = 3
	}
	if cfg.Patience == 0 {
		cfg.Patience = 2 * time.Minute
	}
	if cfg.Silence == 0 {
		cfg.Silence = 45 * time.Second
	}
	c := &Client{cfg: cfg, base: base, http: cfg.HTTP}
	if c.http == nil {
		if c.http, err = newHTTP(cfg.CAFile); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// BaseURL is the address that the client calls.
func (c *Client) BaseURL() string { return c.base.String() }

func newHTTP(caFile string) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// A coordinator that has accepted a connection answers headers quickly; a
	// stream's body may then last for hours.
	transport.ResponseHeaderTimeout = 60 * time.Second
	transport.MaxIdleConnsPerHost = 16
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificates to trust: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, protocolError("%s holds no PEM certificate", caFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{
		Transport: transport,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if via[0].Method != http.MethodGet {
				// Following would turn a POST into a GET and look like success.
				return http.ErrUseLastResponse
			}
			if len(via) >= 5 {
				return errors.New("stopped after 5 redirects")
			}
			return nil
		},
	}, nil
}

// request is one call of the API.
type request struct {
	method string
	// path holds the segments after the base; each is escaped.
	path  []string
	query url.Values
	body  []byte
	// header is sent beside the client's own.
	header http.Header
}

func get(path ...string) request  { return request{method: http.MethodGet, path: path} }
func post(path ...string) request { return request{method: http.MethodPost, path: path} }
func del(path ...string) request  { return request{method: http.MethodDelete, path: path} }

func (r request) with(q url.Values) request { r.query = q; return r }

func (c *Client) url(r request) string {
	u := *c.base
	escaped := make([]string, len(r.path))
	for i, p := range r.path {
		escaped[i] = url.PathEscape(p)
	}
	raw := u.EscapedPath() + "/" + strings.Join(escaped, "/")
	u.Path, _ = url.PathUnescape(raw)
	u.RawPath = raw
	u.RawQuery = r.query.Encode()
	return u.String()
}

func (c *Client) build(ctx context.Context, r request) (*http.Request, error) {
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.url(r), body)
	if err != nil {
		return nil, err
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json")
	}
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	if c.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	if c.cfg.Tenant != "" {
		req.Header.Set("X-Everdict-Tenant", c.cfg.Tenant)
	}
	return req, nil
}

// maxAnswer bounds a JSON answer held in memory: a list of 1,000 records or a
// run with its trace stays far below it.
const maxAnswer = 64 << 20

// call sends r, with retries, and decodes the answer into out unless that is nil.
func (c *Client) call(ctx context.Context, r request, out any) error {
	_, err := c.callHeader(ctx, r, out)
	return err
}

func (c *Client) callHeader(ctx context.Context, r request, out any) (http.Header, error) {
	for try := 0; ; try++ {
		header, err := c.once(ctx, r, out)
		if err == nil {
			return header, nil
		}
		if try >= c.cfg.Retries || !retryable(r.method, err) || ctx.Err() != nil {
			return nil, err
		}
		c.away(err)
		if pause(ctx, backoff(try, retryAfter(err))) != nil {
			return nil, err
		}
	}
}

// away tells whoever listens whether the server is there.
func (c *Client) away(err error) {
	if c.cfg.Contact != nil {
		c.cfg.Contact(err)
	}
}

// value calls r and decodes its answer.
func value[T any](ctx context.Context, c *Client, r request) (T, error) {
	var out T
	err := c.call(ctx, r, &out)
	return out, err
}

// one calls r and decodes its answer into a document of its own; nil on an error.
func one[T any](ctx context.Context, c *Client, r request) (*T, error) {
	out := new(T)
	if err := c.call(ctx, r, out); err != nil {
		return nil, err
	}
	return out, nil
}

// send is one with a body that is encoded.
func send[T any](ctx context.Context, c *Client, r request, body any) (*T, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	return sendJSON[T](ctx, c, r, b)
}

// sendJSON is one with a body as it stands.
func sendJSON[T any](ctx context.Context, c *Client, r request, body json.RawMessage) (*T, error) {
	r.body = body
	return one[T](ctx, c, r)
}

func (c *Client) once(ctx context.Context, r request, out any) (http.Header, error) {
	res, err := c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, &UnreachableError{URL: c.BaseURL(), Err: fmt.Errorf("the answer broke off: %w", err)}
	case len(body) > maxAnswer:
		return nil, strangeAnswer(r, res, body, fmt.Sprintf("more than %d MiB", maxAnswer>>20))
	case out == nil || res.StatusCode == http.StatusNoContent:
		return res.Header, nil
	}
	if raw, ok := out.(*json.RawMessage); ok && json.Valid(body) {
		*raw = body
		return res.Header, nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return nil, strangeAnswer(r, res, body, "something that is not the JSON wanted: "+err.Error())
	}
	return res.Header, nil
}

// ErrUnanswered is told to Config.Contact of a request that was sent and has no answer yet.
var ErrUnanswered = errors.New("the server has not answered yet")

// unanswered is how long a server may think before that is told. It answers within a second unless its machine is in
// trouble.
const unanswered = 5 * time.Second

// open sends r once. A success is returned with its body open; everything else
// is an error.
func (c *Client) open(ctx context.Context, r request) (*http.Response, error) {
	req, err := c.build(ctx, r)
	if err != nil {
		return nil, err
	}
	told := make(chan struct{})
	slow := time.AfterFunc(unanswered, func() {
		defer close(told)
		c.away(ErrUnanswered)
	})
	res, err := c.http.Do(req)
	if !slow.Stop() {
		<-told // so that the answer is told of last
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var inURL *url.Error
		if errors.As(err, &inURL) {
			err = inURL.Err
		}
		return nil, &UnreachableError{URL: c.BaseURL(), Err: err}
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		c.away(nil)
		return res, nil
	}
	defer res.Body.Close()
	return nil, problemOf(r, res)
}
