package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/everdict/everdict/desktop/peer"
	"github.com/everdict/everdict/protocol"
)

// ErrNotRunning: nobody answers at the socket.
var ErrNotRunning = errors.New("the Everdict app is not running")

// Client talks to the app over its socket.
type Client struct{ http *http.Client }

// Dial returns a client of the socket at a path. It connects with the first call.
func Dial(path string) *Client {
	return &Client{&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
			if err != nil {
				return nil, err
			}
			if err := peer.Check(c); err != nil { // what is below /tmp can be somebody else's
				return nil, errors.Join(err, c.Close())
			}
			return c, nil
		},
		MaxIdleConns: 1, IdleConnTimeout: 5 * time.Second,
	}}}
}

// Close closes what it keeps open.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) request(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	if method != http.MethodGet {
		if body == nil {
			body = struct{}{}
		}
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://everdict/api/"+path, content)
	if err != nil {
		return nil, err
	}
	if content != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(r)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, ErrNotRunning
	case err != nil:
		return nil, fmt.Errorf("ask the app: %w", err)
	case res.StatusCode < 300:
		return res, nil
	}
	defer res.Body.Close()
	p := &protocol.Problem{}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxBody)).Decode(p); err != nil || p.Message == "" {
		return nil, fmt.Errorf("ask the app: it answers %s", res.Status)
	}
	p.Status = res.StatusCode
	return nil, p
}

// Do is one request. path is without "api/"; into can be nil.
func (c *Client) Do(ctx context.Context, method, path string, body, into any) error {
	res, err := c.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if into == nil || res.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		return fmt.Errorf("ask the app: its answer cannot be read: %w", err)
	}
	return nil
}

// State reads the state.
func (c *Client) State(ctx context.Context) (*State, error) {
	var s State
	return &s, c.Do(ctx, http.MethodGet, "state", nil, &s)
}

// Open hands over what a second process was started with.
func (c *Client) Open(ctx context.Context, link string) (*Opened, error) {
	var o Opened
	return &o, c.Do(ctx, http.MethodPost, "open", OpenRequest{Link: link}, &o)
}

// Watch calls f with each state until it returns false, or ctx or the app ends.
func (c *Client) Watch(ctx context.Context, f func(*State) bool) error {
	return c.events(ctx, "events", func(event string, data []byte) (bool, error) {
		var s State
		if event != "state" {
			return true, nil
		}
		if err := json.Unmarshal(data, &s); err != nil {
			return false, err
		}
		return f(&s), nil
	})
}

// Log calls f with each piece of the log of a job that runs, until the job has ended or f returns false.
func (c *Client) Log(ctx context.Context, run string, epoch int64, f func(LogChunk) bool) error {
	return c.events(ctx, fmt.Sprintf("jobs/%s/%d/log", run, epoch), func(event string, data []byte) (bool, error) {
		var chunk LogChunk
		if event != "log" {
			return event != "end", nil
		}
		if err := json.Unmarshal(data, &chunk); err != nil {
			return false, err
		}
		return f(chunk), nil
	})
}

func (c *Client) events(ctx context.Context, path string, f func(event string, data []byte) (bool, error)) error {
	res, err := c.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	r := bufio.NewReader(res.Body)
	event := ""
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return ErrNotRunning
		}
		line = strings.TrimRight(line, "\n")
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event = name
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if more, err := f(event, []byte(data)); err != nil || !more {
				return err
			}
		}
	}
}
