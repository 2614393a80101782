package cli

import (
	"regexp"
	"strings"
)

// routeCommands are the commands that call a route of the API, by the route
// without what comes after the noun. {id} stands for an id of any kind.
var routeCommands = map[string]string{
	"GET /docs":                      "everdict --help",
	"GET /runs":                      "everdict runs list",
	"POST /runs":                     "everdict submit",
	"GET /runs/{id}":                 "everdict runs get",
	"GET /runs/{id}/trajectory/live": "everdict runs trace",
	"GET /runners":                   "everdict runners list",
	"POST /runners":                  "everdict runners pair",
	"GET /workspace/runners":         "everdict runners list --workspace",
	"POST /workspace/runners":        "everdict runners pair --workspace",
	"GET /harnesses":                 "everdict harnesses list",
	"GET /harnesses/{id}":            "everdict harnesses list",
	"POST /harnesses":                "everdict harnesses register",
	"GET /harness-templates":         "everdict harnesses list --templates",
	"GET /harness-templates/{id}":    "everdict harnesses list --templates",
	"POST /harness-templates":        "everdict harnesses register --template",
	"GET /pools":                     "everdict pools list",
	"GET /runtimes":                  "everdict runtimes list",
	"POST /runtimes":                 "everdict runtimes register",
	"GET /secrets":                   "everdict secrets list",
	"GET /secrets/usage":             "everdict secrets usage",
	"PUT /secrets/{id}":              "everdict secrets set",
	"DELETE /secrets/{id}":           "everdict secrets rm",
	"GET /keys":                      "everdict keys list",
	"POST /keys":                     "everdict keys create",
	"POST /internal/tenant-keys":     "everdict keys bootstrap",
	"DELETE /runners/{id}":           "everdict runners revoke",
	"DELETE /workspace/runners/{id}": "everdict runners revoke --workspace",
	"DELETE /keys/{id}":              "everdict keys revoke",
	"GET /harnesses/{id}/{id}":       "everdict harnesses get",
	"POST /runs/{id}/cancel":         "everdict runs cancel",
	"POST /runs/{id}/approve":        "everdict runs approve",
	"POST /runs/{id}/reject":         "everdict runs reject",
	"GET /runs/{id}/events":          "everdict runs events",
	"GET /runs/{id}/attempts":        "everdict runs attempts",
	"GET /runs/{id}/placement":       "everdict runs why",
	"GET /runs/{id}/logs":            "everdict runs logs",
	"GET /runs/{id}/trace":           "everdict runs trace",
	"GET /runs/{id}/diff":            "everdict runs diff",
}

// nouns are the segments of a path that are no ids.
var nouns = map[string]bool{
	"docs": true, "runs": true, "runners": true, "workspace": true, "harnesses": true, "harness-templates": true, "runtimes": true, "pools": true, "secrets": true, "usage": true, "keys": true, "internal": true, "tenant-keys": true, "trajectory": true,
	"live": true, "cancel": true, "approve": true, "reject": true, "events": true, "attempts": true, "placement": true, "logs": true, "trace": true, "diff": true,
}

// A route ends where a sentence goes on: a full stop or a comma after it is not
// of its path.
var route = regexp.MustCompile(`\b(GET|POST|PUT|DELETE) (/[A-Za-z0-9/{}_.@-]*[A-Za-z0-9}])`)

// asCommands names commands where a hint of the API names routes.
func asCommands(hint string) string {
	return route.ReplaceAllStringFunc(hint, func(r string) string {
		method, path, _ := strings.Cut(r, " /")
		segments := strings.Split(path, "/")
		for i, s := range segments {
			if !nouns[s] {
				segments[i] = "{id}"
			}
		}
		if command, known := routeCommands[method+" /"+strings.Join(segments, "/")]; known {
			return command
		}
		return r
	})
}
