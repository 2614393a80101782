package window

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// Options are what the window's process is told by flags, which everybody on the machine
// can read.
type Options struct {
	Title string // default "Everdict"
	// Kinds are the ways to try. Default: all.
	Kinds []Kind
	// ProfileDir is where a browser in app mode keeps its profile while it runs. Default:
	// the directory for temporary files.
	ProfileDir string
	// BrowserArgs are further arguments of a browser in app mode.
	BrowserArgs   []string
	Width, Height int // default 980 and 700
}

func (o Options) withDefaults() Options {
	if o.Title == "" {
		o.Title = "Everdict"
	}
	if len(o.Kinds) == 0 {
		o.Kinds = Kinds
	}
	if o.Width == 0 {
		o.Width = 980
	}
	if o.Height == 0 {
		o.Height = 700
	}
	return o
}

// Register adds the flags that Open sets.
func (o *Options) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.Title, "title", "", "title of the window")
	flags.Var((*kinds)(&o.Kinds), "kind", "way to show the page: webview, app or browser; may be repeated (default: each that works, in this order)")
	flags.StringVar(&o.ProfileDir, "profile-dir", "", "directory for the profile of a browser in app mode")
	flags.StringArrayVar(&o.BrowserArgs, "browser-arg", nil, "further argument of a browser in app mode; may be repeated")
	flags.IntVar(&o.Width, "width", 0, "width of the window")
	flags.IntVar(&o.Height, "height", 0, "height of the window")
}

// args are the flags that Register reads.
func (o Options) args() []string {
	var args []string
	add := func(name string, value any) { args = append(args, fmt.Sprintf("--%s=%v", name, value)) }
	if o.Title != "" {
		add("title", o.Title)
	}
	for _, k := range o.Kinds {
		add("kind", k)
	}
	if o.ProfileDir != "" {
		add("profile-dir", o.ProfileDir)
	}
	for _, a := range o.BrowserArgs {
		add("browser-arg", a)
	}
	if o.Width != 0 {
		add("width", o.Width)
	}
	if o.Height != 0 {
		add("height", o.Height)
	}
	return args
}

// kinds is a flag that may be repeated.
type kinds []Kind

func (k *kinds) String() string { return fmt.Sprint([]Kind(*k)) }

func (k *kinds) Type() string { return "kind" }

func (k *kinds) Set(s string) error {
	if !slices.Contains(Kinds, Kind(s)) {
		return fmt.Errorf("there is no %q: want webview, app or browser", s)
	}
	*k = append(*k, Kind(s))
	return nil
}
