package protocol

// Registered is the answer to registering a version.
type Registered struct {
	Workspace string `json:"workspace"`
	ID        string `json:"id"`
	Version   string `json:"version"`
	// Private says of a harness that only who registered it sees it, because it names
	// secrets of theirs.
	Private bool `json:"private,omitempty"`
}

// Deleted is the answer to deleting a version.
type Deleted struct {
	Workspace string `json:"workspace"`
	ID        string `json:"id"`
	Version   string `json:"version"`
	Deleted   bool   `json:"deleted"`
}

// Tags is the body of PUT .../tags.
type Tags struct {
	Tags []string `json:"tags"`
}

// Validate reports everything that is wrong as one BAD_REQUEST.
func (t *Tags) Validate() error {
	var k checker
	if len(t.Tags) > MaxTags {
		k.add("tags", "has %d entries, the limit is %d", len(t.Tags), MaxTags)
	}
	for i, tag := range t.Tags {
		k.name(indexed("tags", i), tag)
	}
	return k.err()
}

// Tagged is the answer to PUT .../tags.
type Tagged struct {
	Workspace string   `json:"workspace"`
	ID        string   `json:"id"`
	Version   string   `json:"version"`
	Tags      []string `json:"tags"`
}

// Validation is the answer of the validate routes: always 200, with what is
// wrong in Errors.
type Validation struct {
	OK               bool     `json:"ok"`
	Kind             string   `json:"kind,omitempty"`
	ID               string   `json:"id,omitempty"`
	Version          string   `json:"version,omitempty"`
	ExistingVersions []string `json:"existingVersions"`
	VersionExists    bool     `json:"versionExists"`
	Errors           []string `json:"errors,omitempty"`
}

// Versions lists the versions of one id, lowest first.
type Versions struct {
	ID          string              `json:"id"`
	Versions    []string            `json:"versions"`
	VersionTags map[string][]string `json:"versionTags,omitempty"`
}

// HarnessEntry is a harness in a list.
type HarnessEntry struct {
	ID              string              `json:"id"`
	Owner           string              `json:"owner"`
	Versions        []string            `json:"versions"`
	LatestVersion   string              `json:"latestVersion"`
	VersionCount    int                 `json:"versionCount"`
	CreatedBy       string              `json:"createdBy,omitempty"`
	LatestCreatedBy string              `json:"latestCreatedBy,omitempty"`
	CreatedAt       Time                `json:"createdAt"`
	UpdatedAt       Time                `json:"updatedAt"`
	VersionTags     map[string][]string `json:"versionTags,omitempty"`
	Kind            string              `json:"kind,omitempty"`
	Category        string              `json:"category,omitempty"`
	TemplateID      string              `json:"templateId,omitempty"`
	TemplateVersion string              `json:"templateVersion,omitempty"`
	// Private is that of the latest version: see Registered.
	Private bool `json:"private,omitempty"`
}

// TemplateEntry is a harness template in a list.
type TemplateEntry struct {
	ID            string   `json:"id"`
	Versions      []string `json:"versions"`
	Owner         string   `json:"owner"`
	LatestVersion string   `json:"latestVersion,omitempty"`
	Kind          string   `json:"kind,omitempty"`
	Category      string   `json:"category,omitempty"`
}

// PinsRequest is the body of POST /harnesses/{id}/pins: a new version that pins
// slots over the version Base (latest by default).
type PinsRequest struct {
	Pins    map[string]string `json:"pins"`
	Version string            `json:"version"`
	Base    string            `json:"base,omitempty"`
	// AllowTags accepts image pins without a digest.
	AllowTags bool `json:"allowTags,omitempty"`
}

// Pinned is the answer of POST /harnesses/{id}/pins. Unchanged: Base has these
// pins already, and no version was made.
type Pinned struct {
	Workspace string            `json:"workspace"`
	ID        string            `json:"id"`
	Version   string            `json:"version"`
	Base      string            `json:"base"`
	Unchanged bool              `json:"unchanged"`
	Pins      map[string]string `json:"pins"`
}

// SpecDiff is the difference of two versions of a harness.
type SpecDiff struct {
	ID        string       `json:"id"`
	Base      string       `json:"base"`
	Candidate string       `json:"candidate"`
	Changes   []SpecChange `json:"changes"`
}

// SpecChange is one field that differs. Op is added, removed or changed.
type SpecChange struct {
	Path      string `json:"path"`
	Op        string `json:"op"`
	Base      any    `json:"base,omitempty"`
	Candidate any    `json:"candidate,omitempty"`
}
