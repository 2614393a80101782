// Package page has the page that the desktop app's window shows: the second one that is built from the sources of the
// dashboard, with the same styles and parts. It knows no address: whoever serves it decides where it lies and who may see
// it, and every URL in it is relative. A program that was built without it says how to get it.
package page

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// What the build writes; in a checkout where it never ran there is a placeholder alone.
//
//go:embed all:dist
var dist embed.FS

// policy lets the page run its own scripts and styles and talk to its own app, and nothing else: part of what is shown
// there is written by agents.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

const (
	indexFile = "index.html"
	assetDir  = "assets"
)

// Page is an http.Handler for GET below the place where the page lies, which is stripped from the path: "" or "/" is the
// page itself, "/assets/..." what it is made of. Everything else is 404.
type Page struct {
	files map[string]file // by path, without the leading slash; "" is the page
	built bool
}

type file struct {
	media   string
	content []byte
}

// Embedded is the page that this program was built with.
func Embedded() (*Page, error) {
	built, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	return New(built)
}

// New serves a build: index.html and the files below assets.
func New(built fs.FS) (*Page, error) {
	p := &Page{files: map[string]file{"": {"text/html; charset=utf-8", []byte(unbuilt)}}}
	index, err := fs.ReadFile(built, indexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("page: read %s: %w", indexFile, err)
	}
	p.built = true
	p.files[""] = file{media(indexFile), index}
	err = fs.WalkDir(built, assetDir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := fs.ReadFile(built, name)
		p.files[name] = file{media(name), content}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("page: read the assets: %w", err)
	}
	return p, nil
}

// Built says whether there is a page, and not only a sentence that says how to get one.
func (p *Page) Built() bool { return p.built }

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	// It lies at a path that is new each time: a copy that a browser keeps is never used.
	h.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	f, ok := p.files[strings.TrimPrefix(r.URL.Path, "/")]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	h.Set("Content-Type", f.media)
	h.Set("Content-Length", strconv.Itoa(len(f.content)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(f.content) // an error means that the window is gone
	}
}

// media is what a file is, for what a build writes not left to what the machine's tables say.
func media(name string) string {
	switch ext := path.Ext(name); ext {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	default:
		if t := mime.TypeByExtension(ext); t != "" {
			return t
		}
		return "application/octet-stream"
	}
}

// unbuilt is the page of a program that was built without it.
const unbuilt = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Everdict</title>
<h1>The window's page is not built</h1>
<p>The app works, and its tray does, but it was built without its page. In a checkout of the project, with Node.js:</p>
<pre>make dashboard desktop</pre>
<p>Then start it again.</p>
</html>
`
