package install

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"strings"
	"text/template"
)

// Names under which desktops know the app.
const (
	// AppID names the .desktop file, the macOS bundle and the launch agent.
	AppID = "dev.everdict"
	// Scheme is that of our links.
	Scheme = "everdict"
	// IconName is that of the icon in a theme.
	IconName = "everdict"
	// DesktopFile is the name of the .desktop file.
	DesktopFile = AppID + ".desktop"
	// UnitFile is the name of the systemd unit.
	UnitFile = "everdict-desktop.service"
	// AgentLabel names the launch agent.
	AgentLabel = AppID + ".desktop"

	// BackgroundFlag starts the app without a window, NoTrayFlag without anything to see.
	BackgroundFlag = "--background"
	NoTrayFlag     = "--no-tray"
)

// ErrPath says that a path cannot be written down where it has to be.
var ErrPath = errors.New("the path of the program cannot be used")

// DesktopEntry is the .desktop file of an executable, which also says that it opens our
// links.
func DesktopEntry(executable string) (string, error) {
	exec, err := execArg(executable)
	if err != nil {
		return "", err
	}
	return `[Desktop Entry]
Type=Application
Name=Everdict
GenericName=Runner
Comment=Run evaluations of AI agents on this computer
Exec=` + exec + ` %u
Icon=` + IconName + `
Terminal=false
Categories=Development;
Keywords=agent;evaluation;runner;
MimeType=x-scheme-handler/` + Scheme + `;
StartupWMClass=everdict
StartupNotify=true
`, nil
}

// AutostartEntry starts an executable at login.
func AutostartEntry(executable string) (string, error) {
	exec, err := execArg(executable)
	if err != nil {
		return "", err
	}
	return `[Desktop Entry]
Type=Application
Name=Everdict
Comment=Take runs on this computer
Exec=` + exec + ` ` + BackgroundFlag + `
Icon=` + IconName + `
Terminal=false
NoDisplay=true
X-GNOME-Autostart-enabled=true
`, nil
}

// execArg writes a path as the first word of Exec. It is quoted only where it has to be:
// xdg-open without a desktop environment takes the quotes for a part of the name.
func execArg(path string) (string, error) {
	if path == "" || path[0] != '/' || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '=' }) {
		return "", fmt.Errorf("%w: %q: want an absolute one, without control characters or '='", ErrPath, path)
	}
	path = strings.ReplaceAll(path, "%", "%%")
	if !strings.ContainsAny(path, " \t\"'\\><~|&;$*?#()`") {
		return path, nil
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range path {
		switch r {
		case '"', '`', '$':
			b.WriteString(`\\`) // a backslash, escaped as in every value of the file
		case '\\':
			b.WriteString(`\\\`)
		}
		b.WriteRune(r)
	}
	b.WriteByte('"')
	return b.String(), nil
}

// Unit is the systemd unit of a user: the resident app without a tray, for machines that
// nobody sits at.
func Unit(executable string) (string, error) {
	if executable == "" || executable[0] != '/' || strings.ContainsFunc(executable, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("%w: %q: want an absolute one, without control characters", ErrPath, executable)
	}
	// "%" begins a specifier and "\" an escape; "$" stands for itself in the first word.
	quoted := strings.NewReplacer("%", "%%", `\`, `\\`, `"`, `\"`).Replace(executable)
	if strings.ContainsAny(executable, " \t\"'\\;") {
		quoted = `"` + quoted + `"`
	}
	return `[Unit]
Description=Everdict, this computer as a runner
Documentation=https://github.com/everdict/everdict/blob/main/docs/desktop.md
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
ExecStart=` + quoted + ` ` + NoTrayFlag + `
# SIGTERM drains; what is left after that is ended with the control group.
KillMode=mixed
TimeoutStopSec=120s
Restart=on-failure
RestartSec=5s
Delegate=yes

[Install]
WantedBy=default.target
`, nil
}

// property is a key of a property list with its value as XML.
type property struct{ Key, Value string }

var plistTemplate = template.Must(template.New("plist").Parse(`<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
{{- range .}}
	<key>{{.Key}}</key>
	{{.Value}}
{{- end}}
</dict>
</plist>
`))

func propertyList(properties ...property) string {
	var b bytes.Buffer
	if err := plistTemplate.Execute(&b, properties); err != nil {
		panic(err) // the template and its data are ours
	}
	return b.String()
}

func plistString(s string) string {
	var b strings.Builder
	b.WriteString("<string>")
	_ = xml.EscapeText(&b, []byte(s)) // into memory
	b.WriteString("</string>")
	return b.String()
}

func plistStrings(list ...string) string {
	var b strings.Builder
	b.WriteString("<array>\n")
	for _, s := range list {
		b.WriteString("\t\t" + plistString(s) + "\n")
	}
	b.WriteString("\t</array>")
	return b.String()
}

// BundleExecutable is the name of the program in Contents/MacOS, BundleIcon that of the
// icon in Contents/Resources.
const (
	BundleExecutable = "everdict-desktop"
	BundleIcon       = "everdict.icns"
)

// InfoPlist is Contents/Info.plist of the macOS bundle. The version is that of a release,
// such as 1.2.3; whatever else there is in it macOS does not show.
func InfoPlist(version string) string {
	return propertyList(
		property{"CFBundleIdentifier", plistString(AppID)},
		property{"CFBundleName", plistString("Everdict")},
		property{"CFBundleDisplayName", plistString("Everdict")},
		property{"CFBundleExecutable", plistString(BundleExecutable)},
		property{"CFBundleIconFile", plistString(BundleIcon)},
		property{"CFBundlePackageType", plistString("APPL")},
		property{"CFBundleInfoDictionaryVersion", plistString("6.0")},
		property{"CFBundleShortVersionString", plistString(version)},
		property{"CFBundleVersion", plistString(version)},
		property{"CFBundleURLTypes", `<array>
		<dict>
			<key>CFBundleURLName</key>
			` + plistString(AppID) + `
			<key>CFBundleURLSchemes</key>
			<array>
				` + plistString(Scheme) + `
			</array>
		</dict>
	</array>`},
		property{"LSMinimumSystemVersion", plistString("12.0")},
		// No icon in the Dock, but in the menu bar.
		property{"LSUIElement", "<true/>"},
		property{"NSHighResolutionCapable", "<true/>"},
	)
}

// LaunchAgent starts an executable at login on macOS. It is not started again when it
// ends: whoever quits it means it.
func LaunchAgent(executable string) (string, error) {
	if executable == "" || executable[0] != '/' || strings.ContainsFunc(executable, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("%w: %q: want an absolute one, without control characters", ErrPath, executable)
	}
	return propertyList(
		property{"Label", plistString(AgentLabel)},
		property{"ProgramArguments", plistStrings(executable, BackgroundFlag)},
		property{"RunAtLoad", "<true/>"},
		property{"ProcessType", plistString("Interactive")},
		property{"LimitLoadToSessionType", plistString("Aqua")},
	), nil
}

// RegistryValue is a text in HKEY_CURRENT_USER of Windows.
type RegistryValue struct {
	Key  string
	Name string // "" is the key's default
	Text string
}

// Keys of the registry, below HKEY_CURRENT_USER.
const (
	SchemeKey  = `Software\Classes\` + Scheme
	CommandKey = SchemeKey + `\shell\open\command`
	RunKey     = `Software\Microsoft\Windows\CurrentVersion\Run`
	RunName    = "Everdict"
)

// SchemeValues have Windows open our links with an executable.
func SchemeValues(executable string) ([]RegistryValue, error) {
	exe, err := windowsPath(executable)
	if err != nil {
		return nil, err
	}
	return []RegistryValue{
		{Key: SchemeKey, Text: "URL:Everdict"},
		{Key: SchemeKey, Name: "URL Protocol"},
		// The link is one argument: browsers escape quotes in what stands for %1.
		{Key: CommandKey, Text: `"` + exe + `" "%1"`},
	}, nil
}

// RunValue has Windows start an executable at login.
func RunValue(executable string) (RegistryValue, error) {
	exe, err := windowsPath(executable)
	return RegistryValue{Key: RunKey, Name: RunName, Text: `"` + exe + `" ` + BackgroundFlag}, err
}

func windowsPath(p string) (string, error) {
	drive := len(p) > 2 && p[1] == ':' && p[2] == '\\'
	if !drive && !strings.HasPrefix(p, `\\`) || strings.ContainsAny(p, "\"<>|?*%\r\n\t\x00") {
		return "", fmt.Errorf(`%w: %q: want an absolute one such as C:\Everdict\everdict-desktop.exe, without "%%"`, ErrPath, p)
	}
	return p, nil
}
