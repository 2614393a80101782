// Package dashboard serves the web page that shows the fleet and the evidence. The
// page is built from the sources in web and embedded; a program that was built
// without it says how to get it. The page uses the same API as everybody else.
package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

// What the build writes; in a checkout where it never ran there is a placeholder
// alone.
//
//go:embed all:dist
var dist embed.FS

// policy lets the page run its own scripts and styles and talk to its own
// coordinator, and nothing else: what is shown there is written by agents.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

const (
	indexFile = "index.html"
	assetDir  = "assets"
)

// Dashboard is an http.Handler for Patterns.
type Dashboard struct {
	version string
	index   *file // nil: it was not built
	assets  map[string]*file
}

// file is a file of the build. Its compressed form is made when somebody first
// asks for it.
type file struct {
	etag, media string
	plain       []byte
	gzipped     func() []byte // nil where it is not worth it
}

// Embedded is the page that this program was built with. version is shown to those
// who ask for JSON.
func Embedded(version string) (*Dashboard, error) {
	built, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	return New(built, version)
}

// New serves a build: index.html and the files below assets.
func New(built fs.FS, version string) (*Dashboard, error) {
	d := &Dashboard{version: version, assets: map[string]*file{}}
	index, err := fs.ReadFile(built, indexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, fmt.Errorf("dashboard: read %s: %w", indexFile, err)
	}
	d.index = newFile(indexFile, index)
	err = fs.WalkDir(built, assetDir, func(name string, e fs.DirEntry, err error) error {
		switch {
		case name == assetDir && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || e.IsDir():
			return err
		}
		content, err := fs.ReadFile(built, name)
		d.assets["/"+name] = newFile(name, content)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dashboard: read the assets: %w", err)
	}
	return d, nil
}

// Built says whether there is a page to serve.
func (d *Dashboard) Built() bool { return d.index != nil }

// Patterns are what a Dashboard serves, for http.ServeMux. Client-side routes lie
// below /ui, so that they never meet a path of the API.
func Patterns() []string {
	return []string{http.MethodGet + " /{$}", http.MethodGet + " /ui", http.MethodGet + " /ui/", http.MethodGet + " /" + assetDir + "/"}
}

// ServeHTTP implements http.Handler.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	switch {
	case strings.HasPrefix(r.URL.Path, "/"+assetDir+"/"):
		d.asset(w, r)
	case r.URL.Path == "/" && !asksHTML(r):
		d.about(w)
	case d.index == nil:
		serve(w, r, unbuilt, "no-store")
	default:
		// A new version of the server is seen at the next visit; what it has not
		// changed costs a 304.
		serve(w, r, d.index, "no-cache")
	}
}

func secure(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
}

// asksHTML tells a browser from a program: a browser names HTML.
func asksHTML(r *http.Request) bool {
	for _, accept := range r.Header.Values("Accept") {
		if strings.Contains(accept, "text/html") || strings.Contains(accept, "application/xhtml+xml") {
			return true
		}
	}
	return false
}

// about tells a program where it is.
func (d *Dashboard) about(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Vary", "Accept")
	// An error means that the client is gone.
	_ = json.NewEncoder(w).Encode(map[string]any{
		"name": "everdict", "version": d.version, "openapi": "/openapi.json", "docs": "/docs", "runs": "/runs", "dashboard": "/ui/",
	})
}

func (d *Dashboard) asset(w http.ResponseWriter, r *http.Request) {
	f := d.assets[path.Clean(r.URL.Path)]
	if f == nil {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(map[string]string{
			"code": "NOT_FOUND", "message": "the dashboard has no such file", "hint": "reload the page: the server may have been updated",
		})
		return
	}
	// The build names each asset by its content.
	serve(w, r, f, "public, max-age=31536000, immutable")
}

func serve(w http.ResponseWriter, r *http.Request, f *file, caching string) {
	header := w.Header()
	header.Set("Content-Type", f.media)
	header.Set("Cache-Control", caching)
	header.Set("Vary", "Accept, Accept-Encoding")
	body, etag := f.plain, f.etag
	if f.gzipped != nil && acceptsGzip(r) {
		if packed := f.gzipped(); packed != nil {
			body, etag = packed, strings.TrimSuffix(f.etag, `"`)+`-gzip"`
			header.Set("Content-Encoding", "gzip")
		}
	}
	header.Set("ETag", etag)
	if strings.Contains(r.Header.Get("If-None-Match"), etag) {
		header.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // an error means that the client is gone
	}
}

// acceptsGzip reads Accept-Encoding as far as browsers use it; whoever refuses gzip
// with a weight of 0 gets the plain form.
func acceptsGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
		weight = strings.TrimRight(strings.TrimSpace(weight), "0.")
		if strings.TrimSpace(name) == "gzip" && weight != "q=" {
			return true
		}
	}
	return false
}

// worthPacking is the size below which a compressed answer gains nothing.
const worthPacking = 512

func newFile(name string, content []byte) *file {
	sum := sha256.Sum256(content)
	f := &file{etag: `"` + hex.EncodeToString(sum[:12]) + `"`, plain: content, media: mime.TypeByExtension(path.Ext(name))}
	switch path.Ext(name) { // not left to what the machine's tables say
	case ".html":
		f.media = "text/html; charset=utf-8"
	case ".js":
		f.media = "text/javascript; charset=utf-8"
	case ".css":
		f.media = "text/css; charset=utf-8"
	case ".svg":
		f.media = "image/svg+xml"
	case ".json", ".map":
		f.media = "application/json"
	case ".woff2":
		f.media = "font/woff2"
		return f
	case ".png", ".ico", ".webp":
		return f
	}
	if f.media == "" {
		f.media = "application/octet-stream"
	}
	if len(content) >= worthPacking {
		f.gzipped = sync.OnceValue(func() []byte { return pack(content) })
	}
	return f
}

// pack compresses, or returns nil if that does not help.
func pack(content []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(content)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil || b.Len() >= len(content) {
		return nil
	}
	return b.Bytes()
}

// unbuilt is the page of a program that was built without the dashboard.
var unbuilt = newFile(indexFile, []byte(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Everdict</title>
<h1>The dashboard is not built</h1>
<p>This coordinator works, but it was built without its web page. In a checkout of the project, with Node.js:</p>
<pre>make dashboard build</pre>
<p>Then start it again. The API is described at <a href="/docs">/docs</a>.</p>
</html>
`))
